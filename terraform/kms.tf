resource "aws_kms_key" "table" {
  count = local.makes_key ? 1 : 0

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
  count = local.makes_key ? 1 : 0

  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.table[0].key_id
}

locals {
  makes_key        = var.create && var.create_kms_key
  kms_key_arn      = local.makes_key ? aws_kms_key.table[0].arn : var.kms_key_arn
  has_customer_key = local.makes_key || var.kms_key_arn != null
}
