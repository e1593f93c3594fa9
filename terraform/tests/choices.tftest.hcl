# What each choice makes, and that nothing is made that was not chosen.

mock_provider "aws" {
  source = "./tests/mocks"
}

run "the_table_alone_by_default" {
  assert {
    condition = (
      length(aws_kms_key.table) == 0 && length(aws_kms_alias.table) == 0 && length(aws_iam_policy.this) == 0 &&
      length(aws_sqs_queue.events) == 0 && length(aws_sqs_queue.dead_letters) == 0 &&
      length(aws_s3_bucket_notification.events) == 0 && length(output.alarm_names) == 0
    )
    error_message = "Something besides the table is made by default."
  }

  assert {
    condition = (
      aws_dynamodb_table.watermarks[0].billing_mode == "PAY_PER_REQUEST" &&
      aws_dynamodb_table.watermarks[0].deletion_protection_enabled &&
      aws_dynamodb_table.watermarks[0].point_in_time_recovery[0].enabled &&
      one(aws_dynamodb_table.watermarks[0].ttl).attribute_name == "expiresAt" && one(aws_dynamodb_table.watermarks[0].ttl).enabled &&
      aws_dynamodb_table.watermarks[0].server_side_encryption[0].enabled
    )
    error_message = "The table is not on demand, or without protection, recovery, TTL or encryption."
  }

  assert {
    condition     = output.kms_key_arn == null && output.team_policy_documents == {}
    error_message = "There is a key or a team that nobody asked for."
  }
}

run "nothing_at_all" {
  variables {
    create              = false
    create_kms_key      = true
    create_iam_policies = true
    create_alarms       = true
    teams               = { parking = { job_name_prefixes = ["parking-"] } }
    sources             = { landing = { bucket = "landing", prefix = "parking/", events = {} } }
    jobs                = { parking-files = { runs_every_seconds = 3600, stale_after_seconds = 7200 } }
    late_jobs           = ["parking-files"]
  }

  assert {
    condition = (
      length(aws_dynamodb_table.watermarks) == 0 && length(aws_kms_key.table) == 0 && length(aws_kms_alias.table) == 0 &&
      length(aws_iam_policy.this) == 0 && length(aws_sqs_queue.events) == 0 && length(aws_sqs_queue.dead_letters) == 0 &&
      length(aws_sqs_queue_redrive_allow_policy.dead_letters) == 0 && length(aws_s3_bucket_notification.events) == 0 &&
      length(output.alarm_names) == 0 && output.table_name == null && output.table_arn == null
    )
    error_message = "Something is made although create is false."
  }
}

run "a_key_of_its_own" {
  variables {
    create_kms_key              = true
    kms_deletion_window_in_days = 7
    teams                       = { parking = { job_name_prefixes = ["parking-"] } }
  }

  assert {
    condition     = aws_kms_key.table[0].enable_key_rotation && aws_kms_key.table[0].deletion_window_in_days == 7
    error_message = "The key does not rotate, or has another window."
  }

  assert {
    condition     = aws_dynamodb_table.watermarks[0].server_side_encryption[0].kms_key_arn == aws_kms_key.table[0].arn
    error_message = "The table does not use the key."
  }

  assert {
    condition = alltrue([
      for role, document in output.team_policy_documents["parking"] : anytrue([
        for statement in jsondecode(document).Statement :
        statement.Resource == aws_kms_key.table[0].arn &&
        try(statement.Condition, null) == { StringEquals = { "kms:ViaService" = "dynamodb.eu-west-2.amazonaws.com" } }
      ])
    ])
    error_message = "A role may not use the key through DynamoDB, or may use it otherwise."
  }
}

run "a_key_of_yours" {
  variables {
    kms_key_arn = "arn:aws:kms:eu-west-2:111122223333:key/yours"
  }

  assert {
    condition     = length(aws_kms_key.table) == 0 && aws_dynamodb_table.watermarks[0].server_side_encryption[0].kms_key_arn == var.kms_key_arn
    error_message = "The table does not use the given key, or another one is made."
  }
}

run "policies_of_teams" {
  variables {
    create_iam_policies = true
    admin_needs_mfa     = true
    teams = {
      parking  = { job_name_prefixes = ["parking-", "permits/"] }
      platform = { job_name_prefixes = ["*"] }
    }
  }

  assert {
    condition = toset(keys(aws_iam_policy.this)) == toset([
      "parking-reader", "parking-writer", "parking-admin", "platform-reader", "platform-writer", "platform-admin",
      "pipeline", "lister",
    ])
    error_message = "Not one policy of each document is made."
  }

  assert {
    condition = jsondecode(output.team_policy_documents["parking"]["writer"]).Statement == [
      {
        Sid      = "ItemsOfOwnJobs"
        Effect   = "Allow"
        Action   = ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"]
        Resource = "arn:aws:dynamodb:eu-west-2:111122223333:table/glue-watermarks"
        Condition = {
          "ForAllValues:StringLike" = { "dynamodb:LeadingKeys" = ["parking-*", "permits/*"] }
          Null                      = { "dynamodb:LeadingKeys" = "false" }
        }
      },
      {
        Sid      = "LookAtTheTable"
        Effect   = "Allow"
        Action   = ["dynamodb:DescribeTable"]
        Resource = "arn:aws:dynamodb:eu-west-2:111122223333:table/glue-watermarks"
      },
    ]
    error_message = "The writer's policy is another one."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(output.team_policy_documents["platform"]["admin"]).Statement :
      statement.Condition.Bool == { "aws:MultiFactorAuthPresent" = "true" }
    ])
    error_message = "An admin does not need MFA."
  }
}

run "events_of_two_sources_in_one_bucket" {
  variables {
    name          = "wm"
    create_alarms = true
    sources = {
      parking = { bucket = "landing", prefix = "parking/", events = {} }
      permits = { bucket = "landing", prefix = "permits/", events = { retention_seconds = 86400, kms_key_arn = "arn:aws:kms:eu-west-2:111122223333:key/q" } }
      archive = { bucket = "archive", prefix = "" }
    }
  }

  assert {
    condition = (
      toset(keys(aws_sqs_queue.events)) == toset(["parking", "permits"]) &&
      toset(keys(aws_sqs_queue.dead_letters)) == toset(["parking", "permits"]) &&
      keys(aws_s3_bucket_notification.events) == ["landing"] && length(aws_s3_bucket_notification.events["landing"].queue) == 2
    )
    error_message = "Not each source with events has a queue, or a bucket has not one list of notifications."
  }

  assert {
    condition = (
      aws_sqs_queue.events["parking"].sqs_managed_sse_enabled && aws_sqs_queue.dead_letters["parking"].sqs_managed_sse_enabled &&
      aws_sqs_queue.events["permits"].kms_master_key_id == "arn:aws:kms:eu-west-2:111122223333:key/q" &&
      aws_sqs_queue.events["permits"].message_retention_seconds == 86400
    )
    error_message = "A queue is not encrypted as chosen."
  }

  assert {
    condition = (
      aws_sqs_queue.events["parking"].message_retention_seconds < aws_sqs_queue.dead_letters["parking"].message_retention_seconds &&
      jsondecode(aws_sqs_queue.events["parking"].redrive_policy).maxReceiveCount == 20
    )
    error_message = "A dead letter may be gone as soon as it comes, or a few failed runs make dead letters."
  }

  assert {
    condition = alltrue([
      for queue in aws_s3_bucket_notification.events["landing"].queue :
      queue.events == toset(["s3:LifecycleExpiration:*", "s3:ObjectCreated:*", "s3:ObjectRemoved:*"])
    ])
    error_message = "S3 does not tell of all that makes files new or gone."
  }

  assert {
    condition = jsondecode(aws_sqs_queue.events["parking"].policy).Statement[0] == {
      Sid       = "TheBucketSends"
      Effect    = "Allow"
      Principal = { Service = "s3.amazonaws.com" }
      Action    = "sqs:SendMessage"
      Resource  = "arn:aws:sqs:eu-west-2:111122223333:wm-parking"
      Condition = {
        ArnEquals    = { "aws:SourceArn" = "arn:aws:s3:::landing" }
        StringEquals = { "aws:SourceAccount" = "111122223333" }
      }
    }
    error_message = "Somebody else than the bucket may send."
  }

  assert {
    condition     = jsondecode(aws_sqs_queue_redrive_allow_policy.dead_letters["parking"].redrive_allow_policy).redrivePermission == "byQueue"
    error_message = "Any queue may use the dead-letter queue."
  }

  assert {
    condition = alltrue([
      for alarm, expected in {
        throttled     = ["ReadThrottleEvents", "WriteThrottleEvents"]
        system-errors = [for operation in ["DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"] : "SystemErrors of ${operation}"]
        } : toset(flatten([
          for query in aws_cloudwatch_metric_alarm.table[alarm].metric_query : [
            for metric in query.metric :
            try("${metric.metric_name} of ${metric.dimensions["Operation"]}", metric.metric_name)
            if metric.namespace == "AWS/DynamoDB" && metric.dimensions["TableName"] == "glue-watermarks" && metric.period == 300 && metric.stat == "Sum"
          ]
        ])) == toset(expected) && [
        for query in aws_cloudwatch_metric_alarm.table[alarm].metric_query : query.expression if query.return_data == true
      ] == ["SUM(FILL(METRICS(), 0))"]
    ])
    error_message = "The alarms of the table add something else up."
  }

  assert {
    condition = alltrue([
      for alarm in values(aws_cloudwatch_metric_alarm.table) :
      alarm.threshold == 0 && alarm.evaluation_periods == 3 && alarm.datapoints_to_alarm == 2 &&
      alarm.comparison_operator == "GreaterThanThreshold" && alarm.treat_missing_data == "notBreaching"
    ])
    error_message = "The alarms of the table go off at something else than 2 of 3 times."
  }

  assert {
    condition = {
      for source, alarm in aws_cloudwatch_metric_alarm.dead_letters : source => [
        alarm.namespace, alarm.metric_name, alarm.dimensions["QueueName"], alarm.statistic, alarm.period, alarm.threshold,
        alarm.evaluation_periods, alarm.comparison_operator, alarm.treat_missing_data,
      ]
      } == {
      for source in ["parking", "permits"] : source => [
        "AWS/SQS", "ApproximateNumberOfMessagesVisible", "wm-${source}-dead", "Maximum", 300, 0, 1, "GreaterThanThreshold", "notBreaching",
      ]
    }
    error_message = "The alarms on dead letters watch something else."
  }

  assert {
    condition     = join(" ", output.alarm_names) == "wm-dead-letters-parking wm-dead-letters-permits wm-system-errors wm-throttled"
    error_message = "The alarms are others."
  }
}

run "notifications_kept_elsewhere" {
  variables {
    manage_bucket_notifications = false
    sources                     = { parking = { bucket = "landing", prefix = "parking/", events = {} } }
  }

  assert {
    condition     = length(aws_s3_bucket_notification.events) == 0 && keys(output.queue_arns) == ["parking"]
    error_message = "The bucket's notifications are replaced, or there is no queue."
  }
}

run "alarms_of_late_jobs" {
  variables {
    late_jobs = ["parking files", "parking-rows"]
  }

  assert {
    condition = {
      for job, alarm in aws_cloudwatch_metric_alarm.late : job => flatten([
        for query in alarm.metric_query : [
          for metric in query.metric :
          [query.id, metric.namespace, metric.metric_name, metric.dimensions["Job"], metric.period, metric.stat]
        ]
      ])
      } == {
      for job in ["parking files", "parking-rows"] : job => ["said", "GlueWatermarks", "Late", job, 900, "Maximum"]
    }
    error_message = "The alarms on late jobs watch something else."
  }

  assert {
    condition = alltrue([
      for alarm in values(aws_cloudwatch_metric_alarm.late) :
      alarm.threshold == 0 && alarm.evaluation_periods == 2 && alarm.treat_missing_data == "breaching" &&
      jsonencode([for query in alarm.metric_query : query.expression if query.return_data == true]) == jsonencode(["FILL(said, 1)"])
    ])
    error_message = "A job is not late after two periods, or silence is taken for a job on time."
  }

  assert {
    condition     = output.alarm_names == tolist(["glue-watermarks-late-parking files", "glue-watermarks-late-parking-rows"])
    error_message = "The alarms have other names, or there are more."
  }
}

run "alarms_of_jobs" {
  variables {
    alarm_topic_arn = "arn:aws:sns:eu-west-2:111122223333:alarms"
    jobs = {
      parking-files = { runs_every_seconds = 3600, stale_after_seconds = 7200 }
      parking-rows  = { runs_every_seconds = 86400, stale_after_seconds = 100000, measure = "lag", plan_open_after_seconds = 600 }
    }
  }

  assert {
    condition = alltrue([
      for job, expected in {
        parking-files = { said = "AgeSeconds", period = 3600, threshold = 7200, filled = "FILL(said, 7201)" }
        parking-rows  = { said = "LagSeconds", period = 86400, threshold = 100000, filled = "FILL(said, 100001)" }
      } :
      aws_cloudwatch_metric_alarm.stale[job].threshold == expected.threshold &&
      jsonencode([for query in aws_cloudwatch_metric_alarm.stale[job].metric_query : query.expression if query.return_data == true]) ==
      jsonencode([expected.filled]) &&
      jsonencode(flatten([
        for query in aws_cloudwatch_metric_alarm.stale[job].metric_query : [
          for metric in query.metric :
          [query.id, metric.namespace, metric.metric_name, metric.dimensions["Job"], metric.period, metric.stat]
        ]
      ])) == jsonencode(["said", "GlueWatermarks", expected.said, job, expected.period, "Minimum"])
    ])
    error_message = "The alarms on stale jobs watch something else."
  }

  assert {
    condition = alltrue([
      for alarm in values(aws_cloudwatch_metric_alarm.stale) :
      alarm.evaluation_periods == 2 && alarm.datapoints_to_alarm == null && alarm.treat_missing_data == "breaching"
    ])
    error_message = "A job is not stale after two periods without a word."
  }

  assert {
    condition = {
      for name, alarm in aws_cloudwatch_metric_alarm.plan_open : name => [
        alarm.metric_name, alarm.statistic, alarm.period, alarm.threshold, alarm.evaluation_periods, alarm.treat_missing_data,
      ]
      } == {
      parking-files = ["OpenPlanAgeSeconds", "Minimum", 3600, 7200, 1, "ignore"]
      parking-rows  = ["OpenPlanAgeSeconds", "Minimum", 86400, 600, 1, "ignore"]
    }
    error_message = "The alarms on open plans watch something else."
  }

  assert {
    condition = {
      for alarm in values(aws_cloudwatch_metric_alarm.ended) : alarm.alarm_name => [
        alarm.metric_name, alarm.dimensions["Job"], alarm.statistic, alarm.period, alarm.threshold, alarm.evaluation_periods,
        alarm.treat_missing_data,
      ]
      } == {
      glue-watermarks-fenced-parking-files  = ["Fenced", "parking-files", "Sum", 300, 0, 1, "notBreaching"]
      glue-watermarks-fenced-parking-rows   = ["Fenced", "parking-rows", "Sum", 300, 0, 1, "notBreaching"]
      glue-watermarks-unknown-parking-files = ["Unknown", "parking-files", "Sum", 300, 0, 1, "notBreaching"]
      glue-watermarks-unknown-parking-rows  = ["Unknown", "parking-rows", "Sum", 300, 0, 1, "notBreaching"]
    }
    error_message = "The alarms on how runs ended watch something else."
  }

  assert {
    condition = alltrue([
      for alarm in concat(values(aws_cloudwatch_metric_alarm.plan_open), values(aws_cloudwatch_metric_alarm.ended)) :
      alarm.namespace == "GlueWatermarks" && length(alarm.dimensions) == 1 && startswith(alarm.dimensions["Job"], "parking-")
    ])
    error_message = "An alarm has another namespace or dimension."
  }

  assert {
    condition = alltrue([
      for alarm in concat(
        values(aws_cloudwatch_metric_alarm.stale), values(aws_cloudwatch_metric_alarm.plan_open),
        values(aws_cloudwatch_metric_alarm.ended),
      ) :
      alarm.comparison_operator == "GreaterThanThreshold" &&
      alarm.alarm_actions == toset([var.alarm_topic_arn]) && alarm.ok_actions == toset([var.alarm_topic_arn])
    ])
    error_message = "An alarm compares otherwise, or tells nobody."
  }

  assert {
    condition     = length(output.alarm_names) == 8
    error_message = "Not every alarm is in the output."
  }
}
