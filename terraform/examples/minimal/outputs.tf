output "table_name" {
  description = "Name of the table."
  value       = module.watermarks.table_name
}

output "role_arn" {
  description = "ARN of the role for the jobs."
  value       = aws_iam_role.jobs.arn
}
