variable "table_name" {
  description = "Name of the DynamoDB table; what jobs give as Watermarks(table_name=...)."
  type        = string
  default     = "glue-watermarks"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{3,255}$", var.table_name))
    error_message = "The table_name must have 3 to 255 characters out of letters, digits, '_', '.' and '-'."
  }
}

# A bool has no other rule than its type: Terraform refuses anything else with "a bool is required".
variable "deletion_protection_enabled" {
  description = "Whether AWS refuses to delete the table. Turn it off, apply, and only then destroy."
  type        = bool
  default     = true
  nullable    = false
}

variable "tags" {
  description = "Tags of the table, besides the provider's default tags."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(var.tags) <= 50
    error_message = "The tags are too many: AWS allows 50 on a table."
  }

  validation {
    condition = alltrue([
      for name, value in var.tags :
      can(regex("^[\\p{L}\\p{Z}\\p{N}_.:/=+@-]{1,128}$", name)) && can(regex("^[\\p{L}\\p{Z}\\p{N}_.:/=+@-]{0,256}$", value))
    ])
    error_message = "Each of the tags must have a name of 1 to 128 characters and a value of at most 256, all letters, digits, spaces or one of _.:/=+@-."
  }

  validation {
    condition     = alltrue([for name in keys(var.tags) : !startswith(lower(name), "aws:")])
    error_message = "The tags must not have names that start with 'aws:', which AWS keeps for itself."
  }
}
