resource "aws_kms_key" "table" {
  count = var.create_kms_key ? 1 : 0

  description             = "Encrypts the table ${var.table_name}"
  enable_key_rotation     = true
  deletion_window_in_days = var.kms_deletion_window_in_days
  tags                    = var.tags

  # In a key's own policy "*" is that key. The account's IAM policies decide who uses it: those of this
  # module let each role use it through DynamoDB only.
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "AccountDecidesByIam"
      Effect    = "Allow"
      Principal = { AWS = "arn:${local.partition}:iam::${local.account_id}:root" }
      Action    = "kms:*"
      Resource  = "*"
    }]
  })
}

resource "aws_kms_alias" "table" {
  count = var.create_kms_key ? 1 : 0

  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.table[0].key_id
}

locals {
  kms_key_arn      = var.create_kms_key ? aws_kms_key.table[0].arn : var.kms_key_arn
  has_customer_key = var.create_kms_key || var.kms_key_arn != null
}
