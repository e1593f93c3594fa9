data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.id
  logs       = "arn:${local.partition}:logs:${local.region}:${local.account_id}:log-group:/aws-glue/*"
}

resource "aws_iam_role" "job" {
  for_each = local.jobs

  name        = "glue-watermarks-parking-${each.key}"
  description = "What the Glue job parking-${each.key} may do"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "glue.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.account_id } }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "writer" {
  for_each = local.jobs

  role       = aws_iam_role.job[each.key].name
  policy_arn = module.watermarks.policy_arns["${local.team}-writer"]
}

resource "aws_iam_role_policy_attachment" "source" {
  for_each = local.jobs

  role       = aws_iam_role.job[each.key].name
  policy_arn = module.watermarks.policy_arns["${each.value.source}-source"]
}

resource "aws_iam_role_policy" "job" {
  for_each = local.jobs

  name = "target-code-and-logs"
  role = aws_iam_role.job[each.key].id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "ListTheLake"
        Effect   = "Allow"
        Action   = "s3:ListBucket"
        Resource = aws_s3_bucket.this["lake"].arn
      },
      {
        Sid      = "ReadTheCode"
        Effect   = "Allow"
        Action   = "s3:GetObject"
        Resource = "${aws_s3_bucket.this["lake"].arn}/code/*"
      },
      {
        Sid    = "WriteTheTarget"
        Effect = "Allow"
        Action = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        # Spark on Glue may mark a folder by an object of this name beside it, also one above what is written.
        Resource = [
          "${aws_s3_bucket.this["lake"].arn}/raw/${each.value.source}/*",
          "${aws_s3_bucket.this["lake"].arn}/raw/${each.value.source}_$folder$",
          "${aws_s3_bucket.this["lake"].arn}/raw_$folder$",
          "${aws_s3_bucket.this["lake"].arn}/temporary/${each.key}/*",
        ]
      },
      # For a range of runs of which one never committed: when did it start?
      {
        Sid      = "LookUpItsRuns"
        Effect   = "Allow"
        Action   = "glue:GetJobRun"
        Resource = "arn:${local.partition}:glue:${local.region}:${local.account_id}:job/parking-${each.key}"
      },
      {
        Sid      = "KeyOfTheLake"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"]
        Resource = aws_kms_key.data.arn
      },
      {
        Sid      = "WriteLogs"
        Effect   = "Allow"
        Action   = ["logs:AssociateKmsKey", "logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = [local.logs, "${local.logs}:log-stream:*"]
      },
      {
        Sid       = "WriteMetricsOfGlue"
        Effect    = "Allow"
        Action    = "cloudwatch:PutMetricData"
        Resource  = "*"
        Condition = { StringEquals = { "cloudwatch:namespace" = "Glue" } }
      },
    ]
  })
}
