output "table_name" {
  description = "Name of the table, for Watermarks(table_name=...)."
  value       = aws_dynamodb_table.watermarks.name
}

output "table_arn" {
  description = "ARN of the table: the one resource in the policies of jobs."
  value       = aws_dynamodb_table.watermarks.arn
}
