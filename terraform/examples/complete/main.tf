# Two Glue jobs on one watermark table, with all that the module offers.
# parking-files takes new files of a folder by the events of its bucket, parking-rows new rows of a table; each has a
# role of its own.

locals {
  team = "parking"

  jobs = {
    files = {
      script = "ingest_files.py"
      source = "parking"
      arguments = {
        "--format"       = "json"
        "--max-files"    = "100000"
        "--events-queue" = module.watermarks.queue_urls["parking"]
      }
    }
    rows = {
      script = "ingest_table.py"
      source = "repairs"
      arguments = {
        "--format"        = "parquet"
        "--cursor-column" = "last_modified"
        "--delay"         = "5m"
      }
    }
  }

  scripts = "${path.module}/../../../scripts/jobs"

  # Glue 5 has pyarrow, which files need; that of Glue 4.0 is too old. A version is pinned, as a newer one might not run there.
  modules = concat(var.glue_version == "4.0" ? ["pyarrow==17.0.0"] : [], var.python_modules)
}

module "watermarks" {
  source = "../.."

  table_name                  = "glue-watermarks"
  name                        = "glue-watermarks"
  deletion_protection_enabled = !var.removable
  restrict_dead_letters       = !var.emulated
  create_kms_key              = true
  create_iam_policies         = true

  teams = {
    (local.team) = { job_name_prefixes = ["parking-"] }
  }

  sources = {
    parking = {
      bucket      = aws_s3_bucket.this["landing"].bucket
      prefix      = "parking/"
      kms_key_arn = aws_kms_key.data.arn
      events      = {}
    }
    # Spark itself looks for the files of this one, which needs more than the folder: see docs/permissions.md.
    repairs = {
      bucket        = aws_s3_bucket.this["landing"].bucket
      prefix        = "repairs/"
      kms_key_arn   = aws_kms_key.data.arn
      limit_listing = false
    }
  }

  create_alarms   = true
  alarm_topic_arn = aws_sns_topic.alarms.arn

  jobs = {
    for name in keys(local.jobs) : "parking-${name}" => {
      runs_every_seconds  = 3600
      stale_after_seconds = 7200
      measure             = name == "rows" ? "lag" : "age"
    }
  }
}

# --- the wheel, the scripts, the jobs ---------------------------------------------------------------

# source_hash and not etag: the ETag of an object under a KMS key is not its MD5.
resource "aws_s3_object" "wheel" {
  bucket      = aws_s3_bucket.this["lake"].bucket
  key         = "code/${basename(var.wheel)}"
  source      = var.wheel
  source_hash = filemd5(var.wheel)
  kms_key_id  = aws_kms_key.data.arn

  depends_on = [aws_s3_bucket_server_side_encryption_configuration.this, aws_s3_bucket_versioning.this]
}

resource "aws_s3_object" "script" {
  for_each = local.jobs

  bucket      = aws_s3_bucket.this["lake"].bucket
  key         = "code/${each.value.script}"
  source      = "${local.scripts}/${each.value.script}"
  source_hash = filemd5("${local.scripts}/${each.value.script}")
  kms_key_id  = aws_kms_key.data.arn

  depends_on = [aws_s3_bucket_server_side_encryption_configuration.this, aws_s3_bucket_versioning.this]
}

# Glue adds --JOB_NAME and --JOB_RUN_ID by itself; the job's name is its name in the table, too.
resource "aws_glue_job" "this" {
  for_each = local.jobs

  name                   = "parking-${each.key}"
  description            = "Takes what is new in ${each.value.source}"
  role_arn               = aws_iam_role.job[each.key].arn
  glue_version           = var.glue_version
  worker_type            = "G.1X"
  number_of_workers      = 2
  execution_class        = "STANDARD"
  max_retries            = 1
  timeout                = 60
  security_configuration = aws_glue_security_configuration.this.name

  command {
    name            = "glueetl"
    python_version  = "3"
    script_location = "s3://${aws_s3_object.script[each.key].bucket}/${aws_s3_object.script[each.key].key}"
  }

  # A second run would be refused by the table in any case; this way Glue does not start it.
  execution_property {
    max_concurrent_runs = 1
  }

  default_arguments = merge(
    {
      "--additional-python-modules"        = join(",", concat(["s3://${aws_s3_object.wheel.bucket}/${aws_s3_object.wheel.key}"], local.modules))
      "--job-language"                     = "python"
      "--job-bookmark-option"              = "job-bookmark-enable"
      "--metrics"                          = "true"
      "--enable-continuous-cloudwatch-log" = "true"
      "--enable-metrics"                   = "true"
      "--TempDir"                          = "s3://${aws_s3_bucket.this["lake"].bucket}/temporary/${each.key}/"
      "--table"                            = module.watermarks.table_name
      "--source"                           = "s3://${aws_s3_bucket.this["landing"].bucket}/${each.value.source}/"
      "--target"                           = "s3://${aws_s3_bucket.this["lake"].bucket}/raw/${each.value.source}/"
    },
    each.value.arguments,
  )
}

resource "aws_glue_trigger" "this" {
  for_each = local.jobs

  name     = "parking-${each.key}"
  type     = "SCHEDULED"
  schedule = var.schedule

  actions {
    job_name = aws_glue_job.this[each.key].name
  }
}

# An event may be lost, rarely. What none told of is found by a listing.
resource "aws_glue_trigger" "listing" {
  name     = "parking-files-listing"
  type     = "SCHEDULED"
  schedule = var.listing_schedule

  actions {
    job_name  = aws_glue_job.this["files"].name
    arguments = { "--events-queue" = "none" }
  }
}

resource "aws_glue_security_configuration" "this" {
  name = "glue-watermarks-parking"

  encryption_configuration {
    cloudwatch_encryption {
      cloudwatch_encryption_mode = "SSE-KMS"
      kms_key_arn                = aws_kms_key.data.arn
    }

    job_bookmarks_encryption {
      job_bookmarks_encryption_mode = "CSE-KMS"
      kms_key_arn                   = aws_kms_key.data.arn
    }

    s3_encryption {
      s3_encryption_mode = "SSE-KMS"
      kms_key_arn        = aws_kms_key.data.arn
    }
  }
}

resource "aws_sns_topic" "alarms" {
  name              = "glue-watermarks-alarms"
  kms_master_key_id = aws_kms_key.data.arn
}
