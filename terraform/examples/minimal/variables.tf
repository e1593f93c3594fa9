variable "removable" {
  description = "Whether `terraform destroy` may remove the table. For trials only."
  type        = bool
  default     = false
  nullable    = false
}
