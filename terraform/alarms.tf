locals {
  jobs          = { for name, job in var.jobs : name => job if var.create }
  late_jobs     = toset([for name in var.late_jobs : name if var.create])
  alarm_actions = var.alarm_topic_arn == null ? [] : [var.alarm_topic_arn]

  # DynamoDB counts throttling for the table as a whole, and its own errors for each operation.
  table_alarms = {
    throttled = {
      description = "DynamoDB throttles requests to the table ${var.table_name}: jobs wait, and stop after 30 seconds of it."
      metrics = {
        reads  = { name = "ReadThrottleEvents", dimensions = { TableName = var.table_name } }
        writes = { name = "WriteThrottleEvents", dimensions = { TableName = var.table_name } }
      }
    }
    system-errors = {
      description = "DynamoDB answers requests to the table ${var.table_name} with errors of its own. See the AWS Health Dashboard."
      metrics = {
        for operation in ["DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"] :
        lower(operation) => { name = "SystemErrors", dimensions = { TableName = var.table_name, Operation = operation } }
      }
    }
  }

  # Of the lines that jobs print in CloudWatch's Embedded Metric Format; see docs/terraform.md.
  metrics_namespace = "GlueWatermarks"
  measures          = { age = "AgeSeconds", lag = "LagSeconds" }

  ends = merge([
    for job in keys(local.jobs) : {
      "fenced-${job}" = {
        job         = job
        end         = "fenced"
        metric      = "Fenced"
        description = "A run of job ${job} lost it to another run and changed nothing. Was it taken over, or did it stand still for longer than its lease? See `watermarks history`."
      }
      "unknown-${job}" = {
        job         = job
        end         = "unknown"
        metric      = "Unknown"
        description = "A run of job ${job} does not know whether it committed: DynamoDB did not answer. The next run finds out. See `watermarks doctor`."
      }
    }
  ]...)
}

# One throttled or failed request is sent again by the package. What lasts is for a person: 2 of 3 times 5 minutes.
resource "aws_cloudwatch_metric_alarm" "table" {
  for_each = var.create && var.create_alarms ? local.table_alarms : {}

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 3
  datapoints_to_alarm = 2
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags

  metric_query {
    id          = "total"
    label       = each.key
    expression  = "SUM(FILL(METRICS(), 0))"
    return_data = true
  }

  dynamic "metric_query" {
    for_each = each.value.metrics

    content {
      id = metric_query.key

      metric {
        namespace   = "AWS/DynamoDB"
        metric_name = metric_query.value.name
        dimensions  = metric_query.value.dimensions
        period      = 300
        stat        = "Sum"
      }
    }
  }
}

# A job that does not run says nothing, which is as stale as one that says so. FILL puts a value in that is too high:
# treat_missing_data alone would not do, as CloudWatch goes back to older points before it takes any for missing.
resource "aws_cloudwatch_metric_alarm" "stale" {
  for_each = local.jobs

  alarm_name          = "${var.name}-stale-${each.key}"
  alarm_description   = "Job ${each.key} is late: two times in a row, each of ${each.value.runs_every_seconds} s, no run brought its ${each.value.measure} to ${each.value.stale_after_seconds} s or less. See `watermarks show`."
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.stale_after_seconds
  evaluation_periods  = 2
  treat_missing_data  = "breaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags

  metric_query {
    id          = "late"
    label       = local.measures[each.value.measure]
    expression  = "FILL(said, ${each.value.stale_after_seconds + 1})"
    return_data = true
  }

  metric_query {
    id = "said"

    metric {
      namespace   = local.metrics_namespace
      metric_name = local.measures[each.value.measure]
      dimensions  = { Job = each.key }
      period      = each.value.runs_every_seconds
      stat        = "Minimum"
    }
  }
}

# `watermarks jobs --metrics` says 1 of a job that is late by its own rhythm. It runs on a schedule and not in the
# job, so it also speaks of jobs that do not run. Twice in a row: a job whose run is about to commit is late for moments.
# Where the command itself stops, nobody would know of a late job, so its silence counts as one: FILL, as of `stale`.
resource "aws_cloudwatch_metric_alarm" "late" {
  for_each = local.late_jobs

  alarm_name          = "${var.name}-late-${each.key}"
  alarm_description   = "Job ${each.key} is late, or `watermarks jobs --metrics` does not run. See `watermarks jobs ${each.key}`."
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 2
  treat_missing_data  = "breaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags

  metric_query {
    id          = "late"
    label       = "Late"
    expression  = "FILL(said, 1)"
    return_data = true
  }

  metric_query {
    id = "said"

    metric {
      namespace   = local.metrics_namespace
      metric_name = "Late"
      dimensions  = { Job = each.key }
      period      = 900
      stat        = "Maximum"
    }
  }
}

# `watermarks jobs --metrics` reports how many files a job could not read and set aside. They wait for a decision.
# Where the command does not run, `late` goes off.
resource "aws_cloudwatch_metric_alarm" "files_set_aside" {
  for_each = local.late_jobs

  alarm_name          = "${var.name}-files-set-aside-${each.key}"
  alarm_description   = "Job ${each.key} could not read some files. See `watermarks files ${each.key}`."
  namespace           = local.metrics_namespace
  metric_name         = "FilesWaiting"
  dimensions          = { Job = each.key }
  statistic           = "Minimum"
  period              = 900
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 1
  treat_missing_data  = "ignore"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

# Between runs nothing is said, and nothing has changed: the alarm stays as it is.
resource "aws_cloudwatch_metric_alarm" "plan_open" {
  for_each = local.jobs

  alarm_name          = "${var.name}-plan-open-${each.key}"
  alarm_description   = "A plan of job ${each.key} is open for more than ${coalesce(each.value.plan_open_after_seconds, each.value.stale_after_seconds)} s: its runs begin and do not commit. See `watermarks doctor`."
  namespace           = local.metrics_namespace
  metric_name         = "OpenPlanAgeSeconds"
  dimensions          = { Job = each.key }
  statistic           = "Minimum"
  period              = each.value.runs_every_seconds
  comparison_operator = "GreaterThanThreshold"
  threshold           = coalesce(each.value.plan_open_after_seconds, each.value.stale_after_seconds)
  evaluation_periods  = 1
  treat_missing_data  = "ignore"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

# Each of these is for a person, once it is seen: the next run replays the batch, and a sink that is not idempotent may
# have it twice.
resource "aws_cloudwatch_metric_alarm" "ended" {
  for_each = local.ends

  alarm_name          = "${var.name}-${each.value.end}-${each.value.job}"
  alarm_description   = each.value.description
  namespace           = local.metrics_namespace
  metric_name         = each.value.metric
  dimensions          = { Job = each.value.job }
  statistic           = "Sum"
  period              = 300
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "dead_letters" {
  for_each = var.create_alarms ? local.event_sources : {}

  alarm_name          = "${var.name}-dead-letters-${each.key}"
  alarm_description   = "Events of source ${each.key} were taken ${each.value.events.max_receive_count} times and never committed, or are not of S3. Look at the queue ${var.name}-${each.key}-dead, and list the whole source once."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = "${var.name}-${each.key}-dead" }
  statistic           = "Maximum"
  period              = 300
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
  ok_actions          = local.alarm_actions
  tags                = var.tags
}
