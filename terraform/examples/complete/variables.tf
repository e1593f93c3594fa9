variable "wheel" {
  description = "Path of the package's wheel, as `python -m build --wheel` makes it."
  type        = string
  nullable    = false

  validation {
    condition     = endswith(var.wheel, ".whl") && fileexists(var.wheel)
    error_message = "The wheel must be a .whl file that is there. Make it with: python -m build --wheel"
  }
}

variable "bucket_prefix" {
  description = "How the names of the two buckets begin; bucket names are unique in the world."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{2,39}$", var.bucket_prefix))
    error_message = "The bucket_prefix must have 3 to 40 characters out of a-z, 0-9 and '-', the first not '-'."
  }
}

variable "glue_version" {
  description = "Version of AWS Glue."
  type        = string
  default     = "5.0"
  nullable    = false

  validation {
    condition     = contains(["4.0", "5.0", "5.1"], var.glue_version)
    error_message = "The glue_version must be 4.0, 5.0 or 5.1: earlier ones have a Python before 3.10."
  }
}

variable "python_modules" {
  description = "What pip installs at the start of each job beside the wheel and what it needs, such as [\"obstore==0.12.1\"]; pin versions."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for module in var.python_modules : can(regex("^[^,\\s]+$", module))])
    error_message = "The python_modules must each be one requirement, without spaces or commas."
  }
}

variable "schedule" {
  description = "When both jobs run, as a cron expression of Glue in UTC."
  type        = string
  default     = "cron(15 * * * ? *)"
  nullable    = false

  validation {
    condition     = can(regex("^cron\\(.+\\)$", var.schedule))
    error_message = "The schedule must look like cron(15 * * * ? *): minutes, hours, day of month, month, day of week, year."
  }
}

variable "listing_schedule" {
  description = "When the files job lists its whole source, besides taking events; at another minute than the schedule's, as one run at once may be at work."
  type        = string
  default     = "cron(45 3 * * ? *)"
  nullable    = false

  validation {
    condition     = can(regex("^cron\\(.+\\)$", var.listing_schedule))
    error_message = "The listing_schedule must look like cron(45 3 * * ? *): minutes, hours, day of month, month, day of week, year."
  }
}

variable "emulated" {
  description = "Whether this is no AWS but an emulator such as moto. Leaves out what moto does not keep, or takes for something else: the dead-letter queue's redrive_allow_policy, and the policies and lifecycles of the buckets."
  type        = bool
  default     = false
  nullable    = false
}

variable "removable" {
  description = "Whether `terraform destroy` may remove the table and buckets that hold something. For trials only."
  type        = bool
  default     = false
  nullable    = false
}
