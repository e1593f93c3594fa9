# Who may do what, as IAM policy documents. docs/permissions.md tells why; tests run the package under them.
locals {
  read_items  = ["dynamodb:GetItem", "dynamodb:Query"]
  write_items = ["dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]

  # No Scan, no batch, no PartiQL: a Scan has no leading key, and ForAllValues is true of a key that is not there.
  item_actions = {
    reader = local.read_items
    writer = sort(concat(local.read_items, local.write_items))
    admin  = sort(concat(local.read_items, local.write_items))
  }

  # Apart from the items: these name no key, so a condition on keys would refuse them.
  table_actions = {
    reader = ["dynamodb:DescribeTable"]
    writer = ["dynamodb:DescribeTable"]
    admin  = ["dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"]
  }

  key_actions = {
    reader = ["kms:Decrypt", "kms:DescribeKey"]
    writer = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
    admin  = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
  }

  mfa = var.admin_needs_mfa ? { Bool = { "aws:MultiFactorAuthPresent" = "true" } } : {}

  through_dynamodb = { StringEquals = { "kms:ViaService" = "dynamodb.${local.region}.amazonaws.com" } }

  through_s3 = { StringEquals = { "kms:ViaService" = "s3.${local.region}.amazonaws.com" } }

  glue = "arn:${local.partition}:glue:${local.region}:${local.account_id}"

  own_jobs = {
    for team, owned in var.teams : team => {
      "ForAllValues:StringLike" = {
        "dynamodb:LeadingKeys" = [for prefix in owned.job_name_prefixes : prefix == "*" ? "*" : "${prefix}*"]
      }
      # The condition above holds for a request without any key. This one does not.
      Null = { "dynamodb:LeadingKeys" = "false" }
    }
  }

  team_policies = merge([
    for team, own in local.own_jobs : {
      for role, actions in local.item_actions : "${team}-${role}" => jsonencode({
        Version = "2012-10-17"
        Statement = concat(
          [{
            Sid       = "ItemsOfOwnJobs"
            Effect    = "Allow"
            Action    = actions
            Resource  = local.table_arn
            Condition = merge(own, role == "admin" ? local.mfa : {})
          }],
          [merge({
            Sid      = "LookAtTheTable"
            Effect   = "Allow"
            Action   = local.table_actions[role]
            Resource = local.table_arn
          }, role == "admin" && var.admin_needs_mfa ? { Condition = local.mfa } : {})],
          [for sid in local.has_customer_key ? ["KeyOfTheTable"] : [] : {
            Sid       = sid
            Effect    = "Allow"
            Action    = local.key_actions[role]
            Resource  = local.kms_key_arn
            Condition = local.through_dynamodb
          }],
        )
      })
    }
  ]...)

  # What Terraform does with the table, but for deleting it.
  pipeline_policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        Sid    = "ShapeOfTheTable"
        Effect = "Allow"
        Action = [
          "dynamodb:CreateTable",
          "dynamodb:DescribeContinuousBackups",
          "dynamodb:DescribeTable",
          "dynamodb:DescribeTimeToLive",
          "dynamodb:ListTagsOfResource",
          "dynamodb:TagResource",
          "dynamodb:UntagResource",
          "dynamodb:UpdateContinuousBackups",
          "dynamodb:UpdateTable",
          "dynamodb:UpdateTimeToLive",
        ]
        Resource = local.table_arn
      }],
      # Terraform asks which key the AWS managed one is, to tell it from one of yours.
      [{
        Sid       = "NameOfTheManagedKey"
        Effect    = "Allow"
        Action    = ["kms:DescribeKey"]
        Resource  = "arn:${local.partition}:kms:${local.region}:${local.account_id}:key/*"
        Condition = { StringEquals = { "kms:RequestAlias" = "alias/aws/dynamodb" } }
      }],
      [for sid in local.has_customer_key ? ["KeyOfTheTable"] : [] : {
        Sid       = sid
        Effect    = "Allow"
        Action    = ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        Resource  = local.kms_key_arn
        Condition = local.through_dynamodb
      }],
    )
  })

  # For lists and reports of all jobs. A Scan reads the items of all teams, which nothing can limit, so the two
  # others, which a list needs for a job without a head, are no more power.
  lister_policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        Sid      = "ItemsOfAllJobs"
        Effect   = "Allow"
        Action   = sort(concat(local.read_items, ["dynamodb:DescribeTable", "dynamodb:Scan"]))
        Resource = local.table_arn
      }],
      [for sid in local.has_customer_key ? ["KeyOfTheTable"] : [] : {
        Sid       = sid
        Effect    = "Allow"
        Action    = local.key_actions["reader"]
        Resource  = local.kms_key_arn
        Condition = local.through_dynamodb
      }],
    )
  })

  source_policies = {
    for name, source in var.sources : name => jsonencode({
      Version = "2012-10-17"
      Statement = concat(
        [for sid in source.prefix != null ? ["ListTheFolder"] : [] : merge({
          Sid      = sid
          Effect   = "Allow"
          Action   = source.versioned ? ["s3:ListBucket", "s3:ListBucketVersions"] : ["s3:ListBucket"]
          Resource = "arn:${local.partition}:s3:::${source.bucket}"
          }, source.limit_listing && source.prefix != "" ? {
          Condition = { StringLike = { "s3:prefix" = ["${source.prefix}*"] } }
        } : {})],
        [for sid in source.prefix != null ? ["ReadItsObjects"] : [] : {
          Sid      = sid
          Effect   = "Allow"
          Action   = source.versioned ? ["s3:GetObject", "s3:GetObjectVersion"] : ["s3:GetObject"]
          Resource = "arn:${local.partition}:s3:::${source.bucket}/${source.prefix}*"
        }],
        [for sid in source.kms_key_arn != null ? ["KeyOfTheObjects"] : [] : {
          Sid       = sid
          Effect    = "Allow"
          Action    = ["kms:Decrypt"]
          Resource  = source.kms_key_arn
          Condition = local.through_s3
        }],
        [for sid in source.ledger != null ? ["KeepTheLedger"] : [] : {
          Sid      = sid
          Effect   = "Allow"
          Action   = ["s3:GetObject", "s3:PutObject"]
          Resource = "arn:${local.partition}:s3:::${source.ledger.bucket}/${source.ledger.prefix}*"
        }],
        [for sid in try(source.ledger.kms_key_arn, null) != null ? ["KeyOfTheLedger"] : [] : {
          Sid       = sid
          Effect    = "Allow"
          Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
          Resource  = source.ledger.kms_key_arn
          Condition = local.through_s3
        }],
        [for sid in source.inventory != null ? ["FindTheInventory"] : [] : merge({
          Sid      = sid
          Effect   = "Allow"
          Action   = ["s3:ListBucket"]
          Resource = "arn:${local.partition}:s3:::${source.inventory.bucket}"
          }, source.inventory.prefix != "" ? {
          Condition = { StringLike = { "s3:prefix" = ["${source.inventory.prefix}*"] } }
        } : {})],
        [for sid in source.inventory != null ? ["ReadTheInventory"] : [] : {
          Sid      = sid
          Effect   = "Allow"
          Action   = ["s3:GetObject"]
          Resource = "arn:${local.partition}:s3:::${source.inventory.bucket}/${source.inventory.prefix}*"
        }],
        [for sid in try(source.inventory.kms_key_arn, null) != null ? ["KeyOfTheInventory"] : [] : {
          Sid       = sid
          Effect    = "Allow"
          Action    = ["kms:Decrypt"]
          Resource  = source.inventory.kms_key_arn
          Condition = local.through_s3
        }],
        # Glue asks for the right to the catalogue and the database as well as to the table or the connection.
        [for sid in source.catalog != null ? ["LookUpTables"] : [] : {
          Sid    = sid
          Effect = "Allow"
          Action = ["glue:GetPartitions", "glue:GetTable"]
          Resource = concat(
            ["${local.glue}:catalog", "${local.glue}:database/${source.catalog.database}"],
            [for table in source.catalog.tables : "${local.glue}:table/${source.catalog.database}/${table}"],
          )
        }],
        [for sid in try(length(source.catalog.connections), 0) > 0 ? ["LookUpConnections"] : [] : {
          Sid      = sid
          Effect   = "Allow"
          Action   = ["glue:GetConnection"]
          Resource = concat(["${local.glue}:catalog"], [for name in source.catalog.connections : "${local.glue}:connection/${name}"])
        }],
        [for sid in source.events != null ? ["TakeItsEvents"] : [] : {
          Sid      = sid
          Effect   = "Allow"
          Action   = ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"]
          Resource = local.queue_arns[name]
        }],
        [for sid in try(source.events.kms_key_arn, null) != null ? ["KeyOfTheEvents"] : [] : {
          Sid       = sid
          Effect    = "Allow"
          Action    = ["kms:Decrypt"]
          Resource  = source.events.kms_key_arn
          Condition = { StringEquals = { "kms:ViaService" = "sqs.${local.region}.amazonaws.com" } }
        }],
      )
    })
  }

  policies = merge(
    local.team_policies,
    { lister = local.lister_policy, pipeline = local.pipeline_policy },
    { for name, policy in local.source_policies : "${name}-source" => policy },
  )
}

resource "aws_iam_policy" "this" {
  for_each = var.create && var.create_iam_policies ? toset(keys(local.policies)) : []

  name        = "${var.name}-${each.key}"
  description = "Of the table ${var.table_name}; see docs/permissions.md of glue-watermarks"
  policy      = local.policies[each.key]
  tags        = var.tags

  lifecycle {
    precondition {
      condition     = length(local.policies[each.key]) <= 6144
      error_message = "The policy ${each.key} is longer than the 6,144 characters that IAM allows. Give its team fewer prefixes, or shorter ones."
    }
  }
}
