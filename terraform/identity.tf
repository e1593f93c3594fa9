data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.id

  # Not the table's attribute, which a first plan does not know: so the plan shows each policy in full, but where the
  # ARN of a key is not known before the apply.
  table_arn = "arn:${local.partition}:dynamodb:${local.region}:${local.account_id}:table/${var.table_name}"
}
