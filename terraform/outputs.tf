output "table_name" {
  description = "Name of the table, for Watermarks(table_name=...); null where nothing is made."
  value       = one(aws_dynamodb_table.watermarks[*].name)
}

output "table_arn" {
  description = "ARN of the table: the one resource in the policies of jobs; null where nothing is made."
  value       = one(aws_dynamodb_table.watermarks[*].arn)
}

output "kms_key_arn" {
  description = "ARN of the customer managed key of the table; null where it has the AWS managed one."
  value       = local.kms_key_arn
}

output "team_policy_documents" {
  description = "JSON of the reader, writer and admin policy of each team: team_policy_documents[\"parking\"][\"writer\"]."
  value = {
    for team in keys(var.teams) : team => {
      for role in keys(local.item_actions) : role => local.team_policies["${team}-${role}"]
    }
  }
}

output "pipeline_policy_document" {
  description = "JSON of the policy for the role that makes and changes the table with Terraform. It cannot delete it, nor read an item, nor make keys, policies, queues or alarms."
  value       = local.pipeline_policy
}

output "lister_policy_document" {
  description = "JSON of the policy for listing the jobs of all teams. It reads every item of the table, for reports of all jobs too: for the platform's own people."
  value       = local.lister_policy
}

output "source_policy_documents" {
  description = "JSON of the policy for reading each source, for keeping its ledger, and for taking its events."
  value       = local.source_policies
}

output "policy_arns" {
  description = "ARNs of the policies that create_iam_policies made, by TEAM-ROLE, NAME-source, \"pipeline\" and \"lister\"."
  value       = { for name, policy in aws_iam_policy.this : name => policy.arn }
}

output "queue_urls" {
  description = "URL of the event queue of each source that has one, for S3EventQueue(queue_url)."
  value       = { for name, queue in aws_sqs_queue.events : name => queue.url }
}

output "queue_arns" {
  description = "ARN of the event queue of each source that has one, for notifications that you manage yourself."
  value       = { for name, queue in aws_sqs_queue.events : name => queue.arn }
}

output "dead_letter_queue_urls" {
  description = "URL of the dead-letter queue of each source that has events."
  value       = { for name, queue in aws_sqs_queue.dead_letters : name => queue.url }
}

output "alarm_names" {
  description = "Names of all alarms, sorted, for a dashboard or a composite alarm."
  value = sort(concat(
    [for alarm in aws_cloudwatch_metric_alarm.table : alarm.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.stale : alarm.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.late : alarm.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.plan_open : alarm.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.ended : alarm.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.dead_letters : alarm.alarm_name],
  ))
}
