# The names and types below are those of scripts/helpers/protocol/items.py; a test compares them.
resource "aws_dynamodb_table" "watermarks" {
  # checkov:skip=CKV_AWS_119: A key of your own is a choice (create_kms_key, kms_key_arn); it costs money and can be lost. Without one the AWS managed key is used.

  count = var.create ? 1 : 0

  name                        = var.table_name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "jobName"
  range_key                   = "runId"
  deletion_protection_enabled = var.deletion_protection_enabled
  tags                        = var.tags

  attribute {
    name = "jobName"
    type = "S"
  }

  attribute {
    name = "runId"
    type = "S"
  }

  ttl {
    attribute_name = "expiresAt"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  # Without an ARN it is the AWS managed key of DynamoDB, whose uses show up in CloudTrail.
  server_side_encryption {
    enabled     = true
    kms_key_arn = local.kms_key_arn
  }

  # No prevent_destroy here: it takes no variable, so a trial table could not be removed without an edit of
  # this file. Deletion protection holds in AWS itself, against other tools and replacement too.
  lifecycle {
    precondition {
      condition     = !(var.create_kms_key && var.kms_key_arn != null)
      error_message = "Both create_kms_key and kms_key_arn are given. Give one: a key is made, or yours is used."
    }
  }
}
