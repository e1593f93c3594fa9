# The table, and one role for the Glue jobs of one team: no key, queue or alarm.
# What the jobs read, write and log is not in here: attach these rights to the role as well.

module "watermarks" {
  source = "../.."

  deletion_protection_enabled = !var.removable

  teams = {
    parking = { job_name_prefixes = ["parking-"] }
  }
}

resource "aws_iam_role" "jobs" {
  name = "parking-jobs"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "glue.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "watermarks" {
  name   = "watermarks"
  role   = aws_iam_role.jobs.id
  policy = module.watermarks.team_policy_documents["parking"]["writer"]
}
