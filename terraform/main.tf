# The names and types below are those of scripts/helpers/items.py; a test compares them.
resource "aws_dynamodb_table" "watermarks" {
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

  # With the AWS managed key of DynamoDB, whose uses show up in CloudTrail.
  server_side_encryption {
    enabled = true
  }

  # No lifecycle { prevent_destroy }: it takes no variable, so a trial table could not be removed without
  # an edit of this file. Deletion protection holds in AWS itself, against other tools and replacement too.
}
