# One key for the data, the logs and the alarms' topic; the table has its own, from the module.
resource "aws_kms_key" "data" {
  description             = "Encrypts the landing and lake buckets, the logs of the jobs and the topic of the alarms"
  enable_key_rotation     = true
  deletion_window_in_days = 30

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "AccountDecidesByIam"
        Effect    = "Allow"
        Principal = { AWS = "arn:${local.partition}:iam::${local.account_id}:root" }
        Action    = "kms:*"
        Resource  = "*"
      },
      {
        Sid       = "LogsOfTheJobs"
        Effect    = "Allow"
        Principal = { Service = "logs.${local.region}.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        Resource  = "*"
        Condition = { ArnLike = { "kms:EncryptionContext:aws:logs:arn" = local.logs } }
      },
      {
        Sid       = "AlarmsToTheTopic"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey*"]
        Resource  = "*"
        Condition = { StringEquals = { "aws:SourceAccount" = local.account_id } }
      },
    ]
  })
}

locals {
  buckets = toset(["landing", "lake"])
}

resource "aws_s3_bucket" "this" {
  # checkov:skip=CKV_AWS_18: Access logs need a third bucket, or CloudTrail data events, which an account has in one place.
  # checkov:skip=CKV_AWS_144: A copy in another region costs as much again; what is in the lake can be made anew from its sources.
  # checkov:skip=CKV2_AWS_62: The landing bucket has notifications, from the module; the lake has nobody who would read them.

  for_each = local.buckets

  bucket        = "${var.bucket_prefix}-${each.key}"
  force_destroy = var.removable
}

resource "aws_s3_bucket_public_access_block" "this" {
  for_each = local.buckets

  bucket                  = aws_s3_bucket.this[each.key].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "this" {
  for_each = local.buckets

  bucket = aws_s3_bucket.this[each.key].id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  for_each = local.buckets

  bucket = aws_s3_bucket.this[each.key].id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.data.arn
    }
  }
}

# The provider waits a minute for it, whatever the server is.
resource "aws_s3_bucket_lifecycle_configuration" "this" {
  for_each = var.emulated ? [] : local.buckets

  bucket = aws_s3_bucket.this[each.key].id

  rule {
    id     = "tidy-up"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }

    noncurrent_version_expiration {
      noncurrent_days = 30
    }
  }

  depends_on = [aws_s3_bucket_versioning.this]
}

# moto takes a Deny that has a condition for one without, and refuses everything.
resource "aws_s3_bucket_policy" "this" {
  for_each = var.emulated ? [] : local.buckets

  bucket = aws_s3_bucket.this[each.key].id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OnlyByTls"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.this[each.key].arn, "${aws_s3_bucket.this[each.key].arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })

  depends_on = [aws_s3_bucket_public_access_block.this]
}
