locals {
  event_sources = { for name, source in var.sources : name => source if source.events != null && var.create }

  queue_arns = {
    for name, source in var.sources : name => "arn:${local.partition}:sqs:${local.region}:${local.account_id}:${var.name}-${name}"
    if source.events != null
  }

  # Keys of a for_each must be known at plan, and the name of a bucket may not be: then the group's name is.
  notification_groups = {
    for name, source in local.event_sources : name => coalesce(source.events.notification_group, source.bucket)
  }

  tls_only = {
    Sid       = "OnlyByTls"
    Effect    = "Deny"
    Principal = "*"
    Action    = "sqs:*"
    Condition = { Bool = { "aws:SecureTransport" = "false" } }
  }
}

# A message here keeps the age that it had, so this queue keeps messages for longer than the other one.
resource "aws_sqs_queue" "dead_letters" {
  for_each = local.event_sources

  name                      = "${var.name}-${each.key}-dead"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = each.value.events.kms_key_arn == null ? true : null
  kms_master_key_id         = each.value.events.kms_key_arn
  tags                      = var.tags

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [merge(local.tls_only, { Resource = "${local.queue_arns[each.key]}-dead" })]
  })
}

# A job asks again after each batch of messages, so a message is to stay hidden for longer than a batch takes.
resource "aws_sqs_queue" "events" {
  for_each = local.event_sources

  name                       = "${var.name}-${each.key}"
  visibility_timeout_seconds = each.value.events.visibility_timeout_seconds
  message_retention_seconds  = each.value.events.retention_seconds
  sqs_managed_sse_enabled    = each.value.events.kms_key_arn == null ? true : null
  kms_master_key_id          = each.value.events.kms_key_arn
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters[each.key].arn
    maxReceiveCount     = each.value.events.max_receive_count
  })

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "TheBucketSends"
        Effect    = "Allow"
        Principal = { Service = "s3.amazonaws.com" }
        Action    = "sqs:SendMessage"
        Resource  = local.queue_arns[each.key]
        Condition = {
          ArnEquals    = { "aws:SourceArn" = "arn:${local.partition}:s3:::${each.value.bucket}" }
          StringEquals = { "aws:SourceAccount" = local.account_id }
        }
      },
      merge(local.tls_only, { Resource = local.queue_arns[each.key] }),
    ]
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "dead_letters" {
  for_each = var.restrict_dead_letters ? local.event_sources : {}

  queue_url = aws_sqs_queue.dead_letters[each.key].id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.events[each.key].arn]
  })
}

# S3 keeps one list of notifications for a bucket, so all sources of a bucket are told of here together.
resource "aws_s3_bucket_notification" "events" {
  for_each = var.manage_bucket_notifications ? toset(values(local.notification_groups)) : []

  bucket = [for name, source in local.event_sources : source.bucket if local.notification_groups[name] == each.key][0]

  dynamic "queue" {
    for_each = { for name, source in local.event_sources : name => source if local.notification_groups[name] == each.key }

    content {
      id            = queue.key
      queue_arn     = aws_sqs_queue.events[queue.key].arn
      events        = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*"]
      filter_prefix = queue.value.prefix == "" ? null : queue.value.prefix
    }
  }
}
