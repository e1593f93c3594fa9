# What AWS would refuse, and what would do harm, is refused at plan.

mock_provider "aws" {
  source = "./tests/mocks"
}

run "bad_names_and_numbers" {
  command = plan

  variables {
    table_name                  = "glue/watermarks"
    name                        = "1st"
    tags                        = { "aws:team" = "parking" }
    kms_key_arn                 = "alias/mine"
    kms_deletion_window_in_days = 6
    teams                       = { Parking = { job_name_prefixes = ["parking-"] } }
    sources                     = { landing = { bucket = "landing", prefix = "parking" } }
    jobs                        = { parking = { runs_every_seconds = 90, stale_after_seconds = 7200 } }
    late_jobs                   = ["parking*"]
    alarm_topic_arn             = "arn:aws:sns:eu-west-2:111122223333:alarms.fifo"
  }

  expect_failures = [
    var.table_name,
    var.name,
    var.tags,
    var.kms_key_arn,
    var.kms_deletion_window_in_days,
    var.teams,
    var.sources,
    var.jobs,
    var.late_jobs,
    var.alarm_topic_arn,
  ]
}

run "a_prefix_that_takes_another_teams_jobs_in" {
  command = plan

  variables {
    teams = {
      park    = { job_name_prefixes = ["park"] }
      parking = { job_name_prefixes = ["parking-"] }
    }
  }

  expect_failures = [var.teams]
}

run "events_of_a_folder_inside_another" {
  command = plan

  variables {
    sources = {
      all     = { bucket = "landing", prefix = "", events = {} }
      parking = { bucket = "landing", prefix = "parking/", events = {} }
    }
  }

  expect_failures = [var.sources]
}

run "a_ledger_inside_that_of_another_source" {
  command = plan

  variables {
    sources = {
      parking = { bucket = "landing", prefix = "parking/", ledger = { bucket = "lake", prefix = "ledgers/" } }
      permits = { bucket = "landing", prefix = "permits/", ledger = { bucket = "lake", prefix = "ledgers/permits/" } }
    }
  }

  expect_failures = [var.sources]
}

run "a_key_made_and_a_key_given" {
  command = plan

  variables {
    create_kms_key = true
    kms_key_arn    = "arn:aws:kms:eu-west-2:111122223333:key/0a1b2c3d"
  }

  expect_failures = [aws_dynamodb_table.watermarks]
}

run "a_policy_longer_than_iam_allows" {
  command = plan

  variables {
    create_iam_policies = true
    teams               = { parking = { job_name_prefixes = [for n in range(100) : format("parking-%055d-", n)] } }
  }

  expect_failures = [
    aws_iam_policy.this["parking-reader"],
    aws_iam_policy.this["parking-writer"],
    aws_iam_policy.this["parking-admin"],
  ]
}
