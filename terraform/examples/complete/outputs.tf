output "table_name" {
  description = "Name of the table."
  value       = module.watermarks.table_name
}

output "job_names" {
  description = "Names of the two Glue jobs, and of their watermarks."
  value       = { for name, job in aws_glue_job.this : name => job.name }
}

output "role_arns" {
  description = "ARN of the role of each job."
  value       = { for name, role in aws_iam_role.job : name => role.arn }
}

output "queue_urls" {
  description = "URL of the queue with the events of each source that has one."
  value       = module.watermarks.queue_urls
}

output "alarm_names" {
  description = "Names of all alarms."
  value       = module.watermarks.alarm_names
}
