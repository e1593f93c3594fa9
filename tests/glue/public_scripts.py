"""Public Glue scripts that use job bookmarks: where they are, what they read, and what they must write.

The scripts are not kept here. Sources are small tables with the columns that the scripts name. Targets hold what Glue's
documentation says about the calls that a script makes, with each new row taken once.
"""

from __future__ import annotations

from datetime import date, datetime

from tests.glue.glue_scripts import Files, Holds, Row, Rows, Script

HACKNEY = "LBHackney-IT/Data-Platform", "89b26d62f24491d42ca0c67c9a0c520e0ae74540"
ORCHESTRATOR = "aws-samples/aws-etl-orchestrator", "6477b181054ac39f5661e6f2cacb4cc885c2f7a5"
CDK = "aws-samples/aws-glue-etl-sample-cdk", "f76d14b373308d50318b819447745395f7f4f201"
RELATIONAL = "aws-samples/aws-glue-blueprint-rel-db-to-s3", "fc4a66bb2a8328e88b416693345116f255cd9fc4"
LAKE_AS_CODE = "aws-samples/data-lake-as-code", "88d89662e8994d64bbab543c70b1f4811d8faec8"
WRANGLER = (
    "aws-samples/aws-glue-amazon-sagemaker-datawrangler-in-mlops-pipeline",
    "3b2317db3b4d78e54d3b69c19eff10f827adcb2c",
)
BLUEPRINTS = "awslabs/aws-glue-blueprint-libs", "c929aae17e7ea20383abf74119c3a1d4538cfcb1"
SAMATASE = "samatase/aws_stuff", "69dea947c8adf11d4797e07dbfa2177b43e886fb"
IMAGES = "nmalesa/image-view", "430f4bf4e860f71a08785f84644bd2abcd0ca6b6"
TICKIT = "garystafford/aws-data-lake-demo", "2ff3d212d3144e1d773fb5e6403302a42c32cb36"
TICKIT_BEFORE = "garystafford/tickit-data-lake-demo", "ba85f99a6f07175ef2e3707d34d73e551f32295c"
NOTIFIED = (
    "m55hr/AWS-Powered-ETL-Pipeline-Automated-Data-Handling-and-Notification-System",
    "b2af1e41062138d7d2e6909e5252e6e3557937f6",
)
STEDI = "kvin007/Glue-Jobs-STEDI-Human-Balance", "18ebd937cc8bfc4c45c21fa53e56fa49dfdd1461"
LAKE_HOUSE = "khanhntn13seq/udacity-data-engineering-with-aws", "b9e1716bfed80a5898eae5f66e650bd6b47d7045"
UDACITY = "udacity/nd027-Data-Engineering-Data-Lakes-AWS-Exercises", "20c27f989c979c479eff446e19988c6235f94e8d"
BANK = "jazzDung/retail-banking-customer360", "2ee35fb7dbd249c7fb8f605ccf59cc4867398e15"
DEMO = "nicoanadt/glue-demo", "8b2a649fe1095fe9482b38fde30147638b076c59"
TAXI = "vijithaglue/Glue-jobs", "6a59cb534aac2d25d78fd6d9685df6d2adef6766"
TRANSFORMER = "Dppzee0201/AWS-Data-Transformer", "2db4274678aaf8901d7a1d5783b4e8b9bfc4ba87"
LINEAGE = "vijayanand-88/DIQA", "d8848dc87e2aa57d7c2bf19fd957943bbda8dba1"
LINEAGE_FILES = "src/test/resources/testdata/rest/payloads/ida/amazonGlueLineagePayloads/s3Files"

TODAY = date.today().strftime("%Y%m%d")
DAY: Row = (TODAY[:4], TODAY[4:6], TODAY[6:], TODAY)
IMPORT_KEYS = "import_year string, import_month string, import_day string, import_date string"
ITEMS = "id bigint, name string"
THREE_RUNS: tuple[list[Row], ...] = ([(1, "belt"), (2, "lamp")], [(3, "bolt")], [])
"""New rows for two runs; the third finds nothing."""
ALL_ITEMS: list[Row] = [(1, "belt"), (2, "lamp"), (3, "bolt")]
KEYED = "id bigint PRIMARY KEY, name text"
TITANIC = "passengerid bigint, age bigint, city string, ticket string, fare double, sex string"
PASSENGERS: tuple[list[Row], ...] = (
    [(1, 18, "Cobh", "A5", 7.5, "f"), (2, 25, "Paris", "B6", 71.0, "m")],
    [(3, 40, "Cobh", "C7", 8.0, "f")],
)
CUSTOMERS = "email string, serialNumber string, customerName string, phone string, shareWithResearchAsOfDate bigint"
ANN: Row = ("ann@a.uk", "s1", "Ann", "1", 1660000000000)
BOB: Row = ("bob@b.uk", "s2", "Bob", "2", None)
CYD: Row = ("cyd@c.uk", "s3", "Cyd", "3", 0)
DEE: Row = ("dee@d.uk", "s4", "Dee", "4", 1660000000001)
MOODS = [{"ParticipantId": "CUSTOMER", "Sentiment": mood} for mood in ("MIXED", "NEGATIVE", "NEUTRAL", "POSITIVE")]
READINGS = "user string, timeStamp bigint, x double"

SCRIPTS = [
    Script(
        *HACKNEY,
        "scripts/jobs/ingest_database_tables_via_jdbc_connection.py",
        [
            Rows("repairs", KEYED, THREE_RUNS, table="council.postgres_public_repairs"),
            Rows("permits", KEYED, ([(7, "day")], [], [(9, "night")]), table="council.postgres_public_permits"),
            Rows("secrets", KEYED, ([(1, "x")],), table="council.private_secrets"),
        ],
        [
            Holds("s3://raw-zone/postgres_public_repairs/", "id name", ALL_ITEMS),
            Holds("s3://raw-zone/postgres_public_permits/", "id name", [(7, "day"), (9, "night")]),
            Holds(
                "s3://details-zone/tables/",
                "table_name error row_count run_id",
                [
                    ("postgres_public_repairs", "False", 2, "jr_0"),
                    ("postgres_public_repairs", "False", 1, "jr_1"),
                    ("postgres_public_repairs", "False", 0, "jr_2"),
                    ("postgres_public_permits", "False", 1, "jr_0"),
                    ("postgres_public_permits", "False", 0, "jr_1"),
                    ("postgres_public_permits", "False", 1, "jr_2"),
                ],
            ),
        ],
        {
            "source_data_database": "council",
            "s3_ingestion_bucket_target": "s3://raw-zone",
            "s3_ingestion_details_target": "s3://details-zone/tables/",
            "table_filter_expression": "^postgres_public_",
        },
        modules=["scripts/helpers/helpers.py", "scripts/helpers/database_ingestion_helpers.py"],
    ),
    Script(
        *HACKNEY,
        "scripts/jobs/copy_tables_landing_to_raw.py",
        [
            Files(
                ITEMS,
                ([(1, "belt", *DAY), (2, "lamp", "2020", "01", "01", "20200101")], [(3, "bolt", *DAY)], []),
                table="landing-zone.parking_permits",
                keys=IMPORT_KEYS,
            ),
            Files(ITEMS, ([(8, "none", *DAY)],), table="landing-zone.housing", keys=IMPORT_KEYS),
        ],
        [
            Holds("s3://raw-zone/parking/parking_permits/", "id name import_date", [(3, "bolt", int(TODAY))]),
            Holds(
                "raw-zone.parking_permits",
                "id name import_timestamp import_date",
                [("id",), ("name",), ("import_timestamp",), ("import_date",)],
                "catalogue",
            ),
        ],
        {
            "glue_database_name_source": "landing-zone",
            "glue_database_name_target": "raw-zone",
            "s3_bucket_target": "raw-zone",
            "s3_prefix": "parking/",
            "table_filter_expression": "^parking",
        },
        modules=["scripts/helpers/helpers.py"],
        databases=["raw-zone"],
        why="The script purges today's partition before it writes what is new: rows of an earlier run of the day go.",
    ),
    Script(
        *HACKNEY,
        "scripts/jobs/copy_manually_uploaded_csv_data_to_raw.py",
        [
            Files(
                "Permit No. string, Area string",
                ([("A1", "north")], [("B2", "south, east")], []),
                "csv",
                "s3://landing-zone/permits/cars/",
            )
        ],
        [Holds("s3://raw-zone/permits/cars/", "permit_no area", [("A1", "north"), ("B2", "south, east")])],
        {"s3_bucket_target": "raw-zone", "s3_bucket_source": "landing-zone", "s3_prefix": "permits/"},
        modules=["scripts/helpers/helpers.py"],
        buckets=["raw-zone"],
    ),
    Script(
        *HACKNEY,
        "scripts/jobs/housing/mtfh_json_export_to_raw.py",
        [Files(ITEMS, THREE_RUNS, "json", "s3://export-zone/persons/")],
        [
            Holds("s3://raw-zone/mtfh/persons/", "id name", ALL_ITEMS),
            Holds("raw.persons", "id import_date", [("id",), ("import_date",)], "catalogue"),
        ],
        {
            "ARG_TABLE_NAME": "persons",
            "ARG_INPUT_BUCKET": "export-zone",
            "ARG_INPUT_PREFIX": "persons/",
            "ARG_OUTPUT_BUCKET": "raw-zone",
            "ARG_OUTPUT_PREFIX": "mtfh/",
            "ARG_OUTPUT_CATALOG_DATABASE": "raw",
            "ARG_FORMAT": "glueparquet",
        },
        modules=["scripts/helpers/helpers.py"],
        databases=["raw"],
        buckets=["raw-zone"],
    ),
    Script(
        *HACKNEY,
        "scripts/jobs/housing_repairs/repairs_axis_cleaning.py",
        [
            Files(
                "timestamp string, date_temp_order_reference string, time_temp_order_reference string, "
                "completed_date string, email string, temporary_order_number string, priority string, "
                "notes_and_information string",
                (
                    [("01/02/2026 10:00:00", "01/02/2026", "10:00", None, "a@a.uk", "T1", "Urgent", "leak", *DAY)],
                    [("02/02/2026 10:00:00", "02/02/2026", "10:00", None, "b@b.uk", "T2", "Normal", "door", *DAY)],
                ),
                table="repairs.axis",
                keys=IMPORT_KEYS,
            )
        ],
        [
            Holds(
                "s3://refined-zone/axis/",
                "temp_order_number_full work_priority_priority_code email_staff data_source",
                [("T1", 3, "a@a.uk", "Axis"), ("T1", 3, "a@a.uk", "Axis"), ("T2", 4, "b@b.uk", "Axis")],
            )
        ],
        {
            "source_catalog_database": "repairs",
            "source_catalog_table": "axis",
            "cleaned_repairs_s3_bucket_target": "s3://refined-zone/axis",
        },
        modules=["scripts/helpers/helpers.py", "scripts/helpers/repairs.py"],
        why="Its source has no transformation_ctx, so each run reads all rows of the latest partition, as on Glue.",
    ),
    Script(
        *ORCHESTRATOR,
        "glue-scripts/process_marketing_data.py",
        [
            Files(
                "date string, new visitors seo bigint, new visitors cpc bigint, return visitors bigint",
                ([("1/1/2026", 5, 6, 7)], [("2/1/2026", 8, 9, 10)]),
                "csv",
                table="etl.marketing",
            )
        ],
        [
            Holds(
                "s3://processed/marketing/",
                "date new_visitors_seo return_visitors",
                [("1/1/2026", 5, 7), ("2/1/2026", 8, 10)],
            )
        ],
        {"s3_output_path": "s3://processed/marketing/", "database_name": "etl", "table_name": "marketing"},
        why="Its source has no transformation_ctx, and each run overwrites the target.",
    ),
    Script(
        *ORCHESTRATOR,
        "glue-scripts/process_sales_data.py",
        [
            Files(
                "date string, lead name string, forecasted monthly revenue bigint, opportunity stage string",
                (
                    [("1/1/2026", "Ann", 5, "Lead"), ("1/1/2026", "Bob", 50, "Won")],
                    [("1/1/2026", "Cyd", 6, "Lead"), ("2/1/2026", "Dee", 7, "Lead")],
                ),
                "csv",
                table="etl.sales",
            )
        ],
        [
            Holds(
                "s3://processed/sales/",
                "date forecasted_lead_revenue leads_generated",
                [("1/1/2026", 11, 2), ("2/1/2026", 7, 1)],
            )
        ],
        {"s3_output_path": "s3://processed/sales/", "database_name": "etl", "table_name": "sales"},
        why="Its source has no transformation_ctx, and each run overwrites the target.",
    ),
    Script(
        *CDK,
        "glue/job1.py",
        [
            Rows(
                "posts",
                "id bigint PRIMARY KEY, content text",
                ([(1, "ab"), (2, "c")], [(3, "def")], []),
                connection="posts",
            )
        ],
        [Holds("s3://masked/posts/", "id content", [(1, "**"), (2, "*"), (3, "***")])],
        {
            "CONNECTION_NAME": "posts",
            "DATABASE_NAME": "sources",
            "TABLE_NAME": "posts",
            "OUTPUT_BUCKET": "masked",
            "OUTPUT_PATH": "posts/",
        },
        buckets=["masked"],
    ),
    Script(
        *RELATIONAL,
        "rel_db_to_s3/source-raw-pyspark.py",
        [Rows("orders", KEYED, THREE_RUNS, table="shop.shop_orders")],
        [Holds("s3://raw-layer/public/orders/", "id name", ALL_ITEMS)],
        {
            "parallel_pull": "true",
            "hashfield": "id",
            "hashpartitions": "2",
            "glue_catalog_db_name": "shop",
            "type_of_pull": "incremental",
            "bookmark_key": "id",
            "bookmark_key_order": "asc",
            "source_table_name": "orders",
            "source_schema_name": "public",
            "glue_catalog_table_name": "shop_orders",
            "target_s3_location": "s3://raw-layer/",
        },
    ),
    Script(
        *RELATIONAL,
        "rel_db_to_s3/raw-curated-pyspark.py",
        [Files(ITEMS, THREE_RUNS, place="s3://raw-layer/public/orders/")],
        [
            Holds("s3://curated-layer/public/orders/", "id name", ALL_ITEMS),
            Holds("curated.orders", "", [("id",), ("name",)], "catalogue"),
        ],
        {
            "nature_of_data": "immutable",
            "source_table_name": "orders",
            "source_schema_name": "public",
            "target_db_name": "curated",
            "target_s3_location": "s3://curated-layer/",
            "target_partition_columns": "None",
            "source_s3_location": "s3://raw-layer/",
            "type_of_pull": "incremental",
        },
        databases=["curated"],
    ),
    Script(
        *LAKE_AS_CODE,
        "scripts/glue.s3import.fullcopy.s3.py",
        [Files(ITEMS, THREE_RUNS, "json", table="opendata.items")],
        [Holds("s3://data-lake/opendata/items/", "id name", ALL_ITEMS)],
        {
            "DL_BUCKET": "data-lake",
            "DL_PREFIX": "/opendata/",
            "DL_REGION": "ap-northeast-3",
            "GLUE_SRC_DATABASE": "opendata",
        },
        buckets=["data-lake"],
    ),
    Script(
        *LAKE_AS_CODE,
        "scripts/glue.s3import.fullcopy.rds.py",
        [
            Rows("repairs", KEYED, THREE_RUNS, table="chembl.repairs"),
            Rows("permits", KEYED, THREE_RUNS, table="chembl.permits"),
        ],
        arguments={
            "DL_BUCKET": "data-lake",
            "DL_PREFIX": "/opendata/",
            "DL_REGION": "ap-northeast-3",
            "GLUE_SRC_DATABASE": "chembl",
        },
        buckets=["data-lake"],
        stops="is planned already. Give each source its own",
        why="It reads every table under one transformation_ctx. Glue then loses rows; here the second read is refused.",
    ),
    Script(
        *WRANGLER,
        "data-preprocessing/connect-blog-aggregateCustomerSentimets.py",
        [
            Files(
                "CustomerMetadata struct<ContactId:string>, Transcript array<struct<ParticipantId:string>>",
                (
                    [({"ContactId": "old"}, MOODS)],
                    [
                        (
                            {"ContactId": "c1"},
                            [*MOODS, MOODS[-1]],
                        ),
                        ({"ContactId": "c2"}, [{"ParticipantId": "AGENT", "Sentiment": "MIXED"}]),
                    ],
                ),
                "json",
                table="amazonconnect_db.cfn_connect_voice",
            ),
            Files(
                "ContactId string, Attributes struct<customerid:string,other:string>",
                ([("old", {"customerid": "7", "other": "x"})], [("c1", {"customerid": "8", "other": "y"})]),
                "json",
                table="amazonconnect_db.cfn_connect_connect_mmnm_ctr",
            ),
            Files(
                "customerid string, name string",
                ([("7", "Ann")], [("8", "Bob")]),
                "json",
                table="amazonconnect_db.cfn_connect_customerdata",
            ),
        ],
        [
            Holds(
                "s3://amazon-connect-f5277b9142db/aggregated_customer_data_25052022/",
                "customerid name sum(MIXED) sum(POSITIVE)",
                [("8", "Bob", 1, 2)],
                "json",
            )
        ],
        why="Each run overwrites the target with what was new to it.",
    ),
    Script(
        *BLUEPRINTS,
        "samples/conversion/conversion.py",
        [
            Files(
                ITEMS,
                ([(1, "belt", "north")], [(2, "lamp", "south")], []),
                "csv",
                table="converted.tmp",
                keys="region string",
            )
        ],
        [
            Holds("s3://converted/items/", "id name region", [(1, "belt", "north"), (2, "lamp", "south")]),
            Holds("converted.items", "", [("id",), ("name",), ("region",)], "catalogue"),
        ],
        {
            "output_database": "converted",
            "tmp_table": "tmp",
            "output_table": "items",
            "output_path": "s3://converted/items/",
        },
    ),
    Script(
        *BLUEPRINTS,
        "samples/partitioning/partitioning.py",
        [
            Files(
                "id bigint, at string",
                ([(1, "2026-01-02 10:00:00")], [(2, "2026-02-03 11:00:00")]),
                "csv",
                table="parted.tmp",
            )
        ],
        [
            Holds("s3://parted/items/", "id year month day", [(1, 2026, 1, 2), (2, 2026, 2, 3)]),
            Holds("parted.items", "", [("at",), ("day",), ("id",), ("month",), ("year",)], "catalogue"),
        ],
        {
            "output_database": "parted",
            "tmp_table": "tmp",
            "output_table": "items",
            "output_path": "s3://parted/items/",
            "timestamp_column_name": "at",
            "timestamp_column_granularity": "day",
        },
    ),
    Script(
        *SAMATASE,
        "demo-datalake-manos/glue-etl-scripts/0-load-taxi-data-to-rds.py",
        [
            Files(
                "vendorid bigint, lpep_pickup_datetime string, fare_amount double",
                ([(1, "2026-01-01", 7.5)], [(2, "2026-01-02", 8.0)], []),
                "csv",
                table="datalake-raw.taxi-raw-data",
            )
        ],
        [
            Holds(
                "octank/taxi",
                "vendorid lpep_pickup_datetime fare_amount",
                [(1, "2026-01-01", 7.5), (2, "2026-01-02", 8.0)],
                "postgresql",
            )
        ],
        connections={"RDS": "octank"},
    ),
    Script(
        *SAMATASE,
        "demo-datalake-manos/glue-etl-scripts/glue-job-etl-flights.py",
        [
            Files(
                "fare paid double, departure date string, txn type string",
                (
                    [(10.5, "1/1/2026", "ORIGINAL"), (4.0, "1/1/2026", "REFUND")],
                    [(11.5, "2/1/2026", "ORIGINAL"), (5.0, "2/1/2026", "REFUND")],
                ),
                "csv",
                table="datalake-submissions.nao_csv",
            )
        ],
        [
            Holds("quickstart/original", "fare departure_date", [(10.5, "1/1/2026"), (11.5, "2/1/2026")], "postgresql"),
            Holds("quickstart/refunds", "fare departure_date", [(4.0, "1/1/2026"), (5.0, "2/1/2026")], "postgresql"),
        ],
        connections={"Data Warehouse": "quickstart"},
    ),
    Script(
        *SAMATASE,
        "road-streaming-analytics/glue-etl/traffic-enrichment.py",
        [
            Files("id string, road string", ([("a", "A1")], [("b", "B2")]), "json", table="tfl.sensors"),
            Files("sensorid string, cars bigint", ([("a", 1), ("z", 2)], [("b", 3)]), "json", table="tfl.traffic_raw"),
        ],
        [
            Holds(
                "s3://tfl-roads-poc/enriched-traffic",
                "sensorid cars road",
                [("a", "1", "A1"), ("z", "2", None), ("b", "3", "B2")],
                "csv",
            )
        ],
    ),
    Script(
        *IMAGES,
        "aws-glue-scripts/import-products.py",
        [
            Files(
                "id bigint, name string, description string",
                ([(1, "belt", "of leather")], [(2, "lamp", None)], []),
                "csv",
                table="productsdb.products",
            )
        ],
        [
            Holds(
                "products/products",
                "id name description",
                [(1, "belt", "of leather"), (2, "lamp", None)],
                "postgresql",
            )
        ],
        connections={"glueConnect": "products"},
    ),
    Script(
        *TICKIT,
        "glue_job_scripts/bronze/tickit_bronze_ems_event.py",
        [Rows("event", KEYED, THREE_RUNS, table="data_lake_demo.source_tickit_ems_event")],
        [
            Holds("s3://open-data-lake-demo-us-east-1/tickit/bronze/event/", "id name", ALL_ITEMS),
            Holds("data_lake_demo.bronze_tickit_ems_event", "", [("id",), ("name",)], "catalogue"),
        ],
    ),
    Script(
        *TICKIT,
        "glue_job_scripts/silver/tickit_silver_ecomm_date.py",
        [
            Files(
                "id bigint, month string",
                ([(1, "JAN"), (2, "DEC")], [(3, "MAY")]),
                table="data_lake_demo.bronze_ecomm_date",
            )
        ],
        [
            Holds(
                "s3://open-data-lake-demo-us-east-1/tickit/silver/date/",
                "id month month_int",
                [(1, "JAN", 1), (2, "DEC", 12), (3, "MAY", 5)],
            )
        ],
    ),
    Script(
        *TICKIT,
        "glue_job_scripts/silver/tickit_silver_ecomm_listing.py",
        [
            Files(
                "id bigint, name string, totalprice double",
                ([(1, "belt", 3.0)], [(2, "lamp", 4.0)], []),
                table="data_lake_demo.bronze_ecomm_listing",
            )
        ],
        [
            Holds("s3://open-data-lake-demo-us-east-1/tickit/silver/listing/", "id name", [(1, "belt"), (2, "lamp")]),
            Holds("data_lake_demo.silver_ecomm_listing", "", [("id",), ("name",)], "catalogue"),
        ],
    ),
    Script(
        *TICKIT_BEFORE,
        "glue_job_scripts/tickit_public_category_raw.py",
        [Rows("category", KEYED, THREE_RUNS, table="tickit_demo.source_tickit_saas_category")],
        stops="A table of 'avro' in the catalogue",
        why="A sink makes no tables of Avro here: to write Avro, Spark needs a jar that it does not come with.",
    ),
    Script(
        *NOTIFIED,
        "glue_Script.py",
        [Files(ITEMS, THREE_RUNS, "csv", table="default.productinput")],
        [Holds("s3://glue-step-function/output/", "id name", ALL_ITEMS, "json")],
    ),
    Script(
        *STEDI,
        "trusted/customer_landing_to_trusted.py",
        [Files(CUSTOMERS, ([ANN, BOB], [CYD, DEE], []), "json", "s3://kvin007-glue-bucket/customer_landing/")],
        [
            Holds(
                "s3://kvin007-glue-bucket/customer_trusted/",
                "email shareWithResearchAsOfDate",
                [("ann@a.uk", 1660000000000), ("dee@d.uk", 1660000000001)],
                "json",
            )
        ],
    ),
    Script(
        *STEDI,
        "trusted/accelerometer_landing_to_trusted_zone.py",
        [
            Files(
                READINGS,
                ([("ann@a.uk", 1, 0.5), ("bob@b.uk", 2, 0.5)], [("dee@d.uk", 3, 1.5)]),
                "json",
                table="stedi_project.accelerometer_landing",
            ),
            Files(CUSTOMERS, ([ANN], [DEE]), "json", "s3://kvin007-glue-bucket/customer_trusted/"),
        ],
        [
            Holds(
                "s3://kvin007-glue-bucket/accelerometer_trusted/",
                "user timeStamp x",
                [("ann@a.uk", 1, 0.5), ("dee@d.uk", 3, 1.5)],
                "json",
            )
        ],
    ),
    Script(
        *STEDI,
        "curated/customer_trusted_to_curated.py",
        [
            Files(CUSTOMERS, ([ANN, DEE], [CYD]), "json", table="stedi_project.customer_trusted"),
            Files(
                READINGS,
                ([("ann@a.uk", 1, 0.5), ("ann@a.uk", 2, 0.5)], [("cyd@c.uk", 3, 1.5)]),
                "json",
                "s3://kvin007-glue-bucket/accelerometer_landing/",
            ),
        ],
        [
            Holds(
                "s3://kvin007-glue-bucket/customers_curated/",
                "email serialNumber",
                [("ann@a.uk", "s1"), ("ann@a.uk", "s1"), ("cyd@c.uk", "s3")],
                "json",
            )
        ],
    ),
    Script(
        *STEDI,
        "curated/trainer_trusted_to_curated.py",
        [
            Files(
                "serialNumber string, sensorReadingTime bigint",
                ([("s1", 1), ("s9", 2)], [("s4", 3)]),
                "json",
                "s3://kvin007-glue-bucket/step_trainer_landing/",
            ),
            Files(
                "serialnumber string, email string",
                ([("s1", "ann@a.uk")], [("s4", "dee@d.uk")]),
                "json",
                table="stedi_project.customers_curated",
            ),
        ],
        [
            Holds(
                "s3://kvin007-glue-bucket/step_trainer_trusted/",
                "serialNumber sensorReadingTime",
                [("s1", 1), ("s4", 3)],
                "json",
            )
        ],
    ),
    Script(
        *STEDI,
        "curated/machine_learning_curated.py",
        [
            Files(
                "user string, timestamp bigint",
                ([("ann@a.uk", 1)], [("dee@d.uk", 3)]),
                "json",
                table="stedi_project.accelerometer_trusted",
            ),
            Files(
                "sensorReadingTime bigint, distance bigint",
                ([(1, 20), (2, 21)], [(3, 22)]),
                "json",
                "s3://kvin007-glue-bucket/step_trainer_landing/",
            ),
        ],
        [
            Holds(
                "s3://kvin007-glue-bucket/machine_learning_curated/",
                "user timestamp sensorReadingTime distance",
                [("ann@a.uk", 1, 1, 20), ("dee@d.uk", 3, 3, 22)],
                "json",
            )
        ],
    ),
    Script(
        *LAKE_HOUSE,
        "project-03-stedi-lake-house/etl/customer_landing_to_trusted.py",
        [Files(CUSTOMERS, ([ANN, BOB], [CYD, DEE], []), "json", table="stedi.customer_landing")],
        [
            Holds(
                "s3://khanhntn-udc-prj3-stedi/customer/trusted/",
                "email customerName",
                [("ann@a.uk", "Ann"), ("dee@d.uk", "Dee")],
                "json",
            ),
            Holds("stedi.cusomer_trusted", "email serialnumber", [("email",), ("serialnumber",)], "catalogue"),
        ],
    ),
    Script(
        *LAKE_HOUSE,
        "project-03-stedi-lake-house/etl/customer_trusted_to_curated.py",
        [
            Files(
                "email string, name string",
                ([("ann@a.uk", "Ann")], [("dee@d.uk", "Dee")]),
                "json",
                table="stedi.customer_trusted",
            ),
            Files(
                "user string, x double",
                ([("ann@a.uk", 1.5), ("ann@a.uk", 1.5)], [("dee@d.uk", 2.5)]),
                "json",
                table="stedi.accelerometer_trusted",
            ),
        ],
        [
            Holds(
                "s3://khanhntn-udc-prj3-stedi/customer/curated/",
                "email name user x",
                [("ann@a.uk", "Ann", "ann@a.uk", 1.5), ("dee@d.uk", "Dee", "dee@d.uk", 2.5)],
                "json",
            )
        ],
    ),
    Script(
        *LAKE_HOUSE,
        "project-03-stedi-lake-house/etl/step_trainer_landing_to_trusted.py",
        [
            Files(
                "serialNumber string, distance bigint",
                ([("s1", 1), ("s9", 2)], [("s4", 3)]),
                "json",
                "s3://khanhntn-udc-prj3-stedi/step-trainer/landing/",
            ),
            Files(
                "serialnumber string, email string",
                ([("s1", "ann@a.uk")], [("s4", "dee@d.uk")]),
                "json",
                table="stedi.customer_curated",
            ),
        ],
        [
            Holds(
                "s3://khanhntn-udc-prj3-stedi/step-trainer/trusted/",
                "serialNumber distance",
                [("s1", 1), ("s4", 3)],
                "json",
            ),
            Holds("stedi.step_trainer_trusted", "", [("distance",), ("serialnumber",)], "catalogue"),
        ],
    ),
    Script(
        *UDACITY,
        "lesson-3-using-spark-in-aws/exercises/concept3-creating-a-job-using-glue-studio/solution/"
        "customer_landing_to_trusted.py",
        [Files(CUSTOMERS, ([ANN, BOB], [CYD, DEE], []), "json", "s3://stedi-udacity/customer/landing/")],
        [Holds("s3://stedi-udacity/customer/trusted/", "email", [("ann@a.uk",), ("dee@d.uk",)], "json")],
    ),
    Script(
        *BANK,
        "glue-script/s3_csv_branch_to_postgres.py",
        [Files(ITEMS, THREE_RUNS, "csv", table="s3_bank_data.branch_csv")],
        connections={"Customer 360 Postgres": "customers"},
        stops="The option 'preactions'",
        why="Statements before a write go with Redshift only; that Glue passes them over elsewhere is not documented.",
    ),
    Script(
        *DEMO,
        "datalake-bookmark/sqlserver12-items-native-bookmark-script.py",
        [
            Rows(
                "items",
                "item_id text, style text, updated_date timestamp, category text",
                (
                    [("a", "s", datetime(2026, 1, 1, 10), "x"), ("b", "s", datetime(2026, 1, 2, 10), "y")],
                    [("a", "t", datetime(2026, 1, 3, 10), "x")],
                    [],
                ),
                table="source_sqlserver12.data_dbo_items",
            )
        ],
        [
            Holds(
                "s3://glue-test-ap-southeast-1-130835040051/data/sql12_items/",
                "item_id style category",
                [("a", "s", "x"), ("b", "s", "y"), ("a", "t", "x")],
            )
        ],
        databases=["glue_demo"],
    ),
    Script(
        *TAXI,
        "glue_job/taxi_join.py",
        [
            Files("pulocationid bigint, zone string", ([(1, "Soho")],), table="parquetdb.taxi_zone_lookup"),
            Files("pulocationid bigint, fare double", ([(1, 7.5)],), table="parquetdb.yellow_tripdata"),
        ],
        stops="The column `pulocationid` already exists",
        why="It writes two columns of one name. What Glue makes of them is not documented.",
    ),
    Script(
        *TRANSFORMER,
        "csvtojson.py",
        [Files(ITEMS, THREE_RUNS, "csv", "s3://dppzee-source/")],
        [Holds("s3://dppzee-destination/", "id name", [("1", "belt"), ("2", "lamp"), ("3", "bolt")], "json")],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}/TestFiles/QATest611.py",
        [Files(TITANIC, PASSENGERS, "csv", table="sourcedb611.titanic611table")],
        [
            Holds(
                "s3://asgqatestautomation4/TargetFiles/Target611/AppMap2Op",
                "passengerid1 city fare1",
                [("1", "Cobh", "7.5"), ("2", "Paris", "71.0"), ("3", "Cobh", "8.0")],
                "csv",
            ),
            Holds(
                "s3://asgqatestautomation4/TargetFiles/Target611/Drop2Op",
                "ticket fare sex",
                [("A5", "7.5", "f"), ("B6", "71.0", "m"), ("C7", "8.0", "f")],
                "csv",
            ),
            Holds(
                "s3://asgqatestautomation4/TargetFiles/Target611/Select2Op",
                "ticket",
                [("A5",), ("B6",), ("C7",)],
                "csv",
            ),
        ],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}/TestFiles/QATest711.py",
        [Files(TITANIC, PASSENGERS, "csv", table="autoglues3lineage.train_sm_s2adb_csv")],
        [
            Holds(
                "s3://asgqatestautomation4/TargetFiles/Target711/split1_op1",
                "passengerid",
                [("1",), ("2",), ("3",)],
                "csv",
            ),
            Holds("s3://asgqatestautomation4/TargetFiles/Target711/split21_op1", "passengerid", [("2",)], "csv"),
            Holds(
                "s3://asgqatestautomation4/TargetFiles/Target711/split22_op1", "passengerid", [("1",), ("3",)], "csv"
            ),
            Holds(
                "s3://asgqatestautomation4/TargetFiles/Target711/split3_op1",
                "passengerid",
                [("1",), ("2",), ("3",)],
                "csv",
            ),
        ],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}/TestFiles/QATest813.py",
        [
            Files(
                "nomber bigint, type string, sex string, citizen string, count bigint, countstate bigint",
                ([(1, "t", "f", "US", 5, 6)], [(2, "u", "m", "UK", 7, 8)]),
                "csv",
                table="amssurveydb.amssurvey",
            )
        ],
        [
            Holds(
                "s3://asgqatestautomation4/TargetFiles/Target813/selFromCol1Opf",
                "type sex countstate",
                [("t", "f", "6"), ("u", "m", "8")],
                "csv",
            ),
            Holds(
                "s3://asgqatestautomation4/TargetFiles/Target813/selFromCol2Opf",
                "nomber citizen count",
                [("1", "US", "5"), ("2", "UK", "7")],
                "csv",
            ),
        ],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}/TestFiles/QATest814.py",
        [
            Files(
                "nomber bigint, type string, sex string, citizen string, count bigint, countstate bigint",
                ([(1, "t", "f", "US", 5, 6)], [(2, "u", "m", "UK", 7, 8)]),
                "csv",
                table="amssurveydb.amssurvey",
            )
        ],
        [
            Holds(
                "s3://asgqatestautomation4/Target814/spigot3",
                "nomber type countstate",
                [("1", "t", "6"), ("2", "u", "8")],
                "csv",
            )
        ],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}/TestFiles/QATest411.py",
        [
            Files(TITANIC, PASSENGERS, "csv", table="autoglues3lineage.train_sm_s2adb_csv"),
            Files(TITANIC, (), "csv", table="autoglues3lineagetarget.train_sm_csv"),
            Files(TITANIC, (), "csv", table="autoglues3lineaget1.gluetargett1_csv"),
            Files(TITANIC, (), "csv", table="autoglues3lineaget12.gluetargett12_csv"),
        ],
        [
            Holds(
                f"s3://catalogued/{target}/",
                "passengerid age ticket fare",
                [("1", "18", "A5", "7"), ("2", "25", "B6", "71"), ("3", "40", "C7", "8")],
                "csv",
            )
            for target in ("autoglues3lineaget1/gluetargett1_csv", "autoglues3lineaget12/gluetargett12_csv")
        ],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}/TestFiles/QATest951.py",
        [
            Files(
                "snno bigint, year bigint, y bigint",
                ([(1, 1984, 2)], [(2, 1985, 3)]),
                "csv",
                table="linkersourcedb.aids2",
            ),
            Files("snno bigint, year bigint, y bigint", (), "csv", table="aidsdb.aids"),
            Files("snno bigint, year bigint, y bigint", (), "csv", table="linkertargetdb.aids3"),
            Rows(
                "gluetable951", "snno bigint, year bigint, y bigint", (), table="linkertargetdb.world_atn_gluetable951"
            ),
        ],
        [
            Holds(
                "s3://catalogued/linkertargetdb/aids3/", "snno year y", [("1", "1984", "2"), ("2", "1985", "3")], "csv"
            ),
            Holds("sources/gluetable951", "snno year y", [(1, 1984, 2), (2, 1985, 3)], "postgresql"),
        ],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}/TestFiles/QATest955.py",
        [
            Files(
                "city string, contactno binary, userid tinyint",
                ([("Cobh", b"1", 1)], [("Paris", b"2", 2)], []),
                "orc",
                table="linkersourcedb.orcfile",
            )
        ],
        [
            Holds(
                "s3://asgqatestautomation4/SourceFiles/s3FileSupportWithGlueTable/GlueTarget/OrcFileOp",
                "city userid",
                [("Cobh", 1), ("Paris", 2)],
                "json",
            )
        ],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}_US_EAST_2/QA/TestFiles/QATest956.py",
        [
            Rows(
                "useraccount",
                "user_id int PRIMARY KEY, username text, email text",
                ([(1, "ann", "ann@a.uk")], [(2, "bob", "bob@b.uk")], []),
                table="accounts_rds.adventureworks_acc_useraccount",
            ),
            Rows(
                "useraccount_bkp",
                "user_id int, username text, email text",
                (),
                table="accounts_rds.adventureworks_acc_useraccount_bkp",
            ),
        ],
        [
            Holds(
                "sources/useraccount_bkp",
                "user_id username email",
                [(1, "ann", "ann@a.uk"), (2, "bob", "bob@b.uk")],
                "postgresql",
            )
        ],
    ),
    Script(
        *LINEAGE,
        f"{LINEAGE_FILES}/TestFiles/QATest1.py",
        [Files(TITANIC, PASSENGERS, "csv", table="autoglues3lineage.train_sm_s2adb_csv")],
        [
            Holds(
                "s3://asgqatestautomation4/Targetdata1A",
                "passengerid city",
                [("1", "Cobh"), ("2", "Paris"), ("3", "Cobh")],
                "csv",
            ),
            Holds(
                "s3://asgqatestautomation4/Targetdata1B", "passengerid city", [(1, "Cobh"), (2, "Paris"), (3, "Cobh")]
            ),
        ],
    ),
]

HERE = "tests/glue/scripts", "of this commit"
WRITTEN_HERE = [
    Script(
        *HERE,
        "console_job.py",
        [Files("part no bigint, area string", ([(1, "north")], [(2, "south")], []), "csv", table="shop.landed")],
        [
            Holds("s3://shop-parts/", "part_no area", [(1, "north"), (2, "south")]),
            Holds("shop.parts", "", [("area",), ("part_no",)], "catalogue"),
        ],
        {"target": "s3://shop-parts/"},
    ),
    Script(
        *HERE,
        "studio_job.py",
        [
            Files(
                "serialNumber string, distance bigint",
                ([("s1", 1), ("s2", 2)], [("s3", 3)]),
                "json",
                "s3://shop-readings/",
            ),
            Files(
                "serialnumber string, shared bigint, owner string",
                ([("s1", 7, "Ann"), ("s2", None, "Bob")], [("s3", 9, "Cyd")]),
                "json",
                table="shop.owners",
            ),
        ],
        [
            Holds(
                "s3://shop-far/",
                "serialNumber metres owner centimetres",
                [("s1", 1, "Ann", 100), ("s3", 3, "Cyd", 300)],
                "json",
            )
        ],
        {"source": "s3://shop-readings/", "target": "s3://shop-far/"},
    ),
    Script(
        *HERE,
        "copy_tables.py",
        [
            Rows("repairs", KEYED, THREE_RUNS, table="council.public_repairs"),
            Files(ITEMS, ([(7, "day")], [], [(9, "night")]), table="council.public_permits"),
            Files(ITEMS, ([(8, "none")],), table="council.private_permits"),
        ],
        [
            Holds("s3://shop-raw/public_repairs/", "id name", ALL_ITEMS),
            Holds("s3://shop-raw/public_permits/", "id name", [(7, "day"), (9, "night")]),
        ],
        {"database": "council", "filter": "^public_", "target": "s3://shop-raw/"},
    ),
]
"""Small scripts in the style of the public ones; these also run in CI."""
