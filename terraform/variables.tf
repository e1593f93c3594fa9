# A bool has no other rule than its type: Terraform refuses anything else with "a bool is required".
variable "create" {
  description = "Whether to make anything. With false the module makes nothing, for configurations that switch it on and off."
  type        = bool
  default     = true
  nullable    = false
}

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

variable "name" {
  description = "How the names of everything besides the table begin: policies, alarms, queues, the key's alias."
  type        = string
  default     = "glue-watermarks"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9_-]{0,39}$", var.name))
    error_message = "The name must have 1 to 40 characters out of letters, digits, '_' and '-', the first a letter."
  }
}

variable "deletion_protection_enabled" {
  description = "Whether AWS refuses to delete the table. Turn it off, apply, and only then destroy."
  type        = bool
  default     = true
  nullable    = false
}

variable "tags" {
  description = "Tags of all that is made, besides the provider's default tags."
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

# --- encryption -------------------------------------------------------------------------------------

variable "create_kms_key" {
  description = "Whether to make a KMS key for the table, with yearly rotation. Otherwise kms_key_arn, or the AWS managed key."
  type        = bool
  default     = false
  nullable    = false
}

variable "kms_key_arn" {
  description = "ARN of a KMS key of yours for the table; null for none. Rotation and policy of it are yours."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.kms_key_arn))
    error_message = "The kms_key_arn must be the ARN of a key, arn:aws:kms:REGION:ACCOUNT:key/ID: not of an alias, and not its id alone."
  }
}

variable "kms_deletion_window_in_days" {
  description = "Days between the destruction of the key that create_kms_key made and its end, in which it can be restored."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = var.kms_deletion_window_in_days >= 7 && var.kms_deletion_window_in_days <= 30 && floor(var.kms_deletion_window_in_days) == var.kms_deletion_window_in_days
    error_message = "The kms_deletion_window_in_days must be a whole number from 7 to 30."
  }
}

# --- who may do what --------------------------------------------------------------------------------

variable "teams" {
  description = "Who owns which jobs: for each team the beginnings of its jobs' names, such as [\"parking-\"], or [\"*\"] for all jobs. Each team gets a reader, a writer and an admin policy."
  type        = map(object({ job_name_prefixes = list(string) }))
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for team in keys(var.teams) : can(regex("^[a-z][a-z0-9-]{0,29}$", team))])
    error_message = "The teams must have names of 1 to 30 characters out of a-z, 0-9 and '-', the first a letter."
  }

  validation {
    condition     = alltrue([for team in values(var.teams) : length(team.job_name_prefixes) > 0])
    error_message = "The teams must each have a prefix in job_name_prefixes; [\"*\"] stands for all jobs."
  }

  # 200, as the job of a backfill has the beginning of the job's name, and not always all of it.
  validation {
    condition = alltrue(flatten([
      for team in values(var.teams) : [
        for prefix in team.job_name_prefixes :
        prefix == "*" || can(regex("^[A-Za-z0-9][A-Za-z0-9 ._/:@=+-]{0,199}$", prefix))
      ]
    ]))
    error_message = "The teams must have prefixes that keep the rule of job names, [A-Za-z0-9][A-Za-z0-9 ._/:@=+-]{0,199}, without wildcards; \"*\" alone stands for all jobs."
  }

  # "park" would match the jobs of "parking-" too.
  validation {
    condition = alltrue(flatten([
      for one, team in var.teams : [
        for other, others in var.teams : [
          for prefix in team.job_name_prefixes : [
            for theirs in others.job_name_prefixes : one == other || prefix == "*" || !startswith(theirs, prefix)
          ]
        ]
      ]
    ]))
    error_message = "The teams must not have prefixes that begin alike: each job name may match the prefix of one team only."
  }
}

variable "create_iam_policies" {
  description = "Whether to make an IAM policy of each document, to attach to roles. The documents are outputs in any case."
  type        = bool
  default     = false
  nullable    = false
}

variable "admin_needs_mfa" {
  description = "Whether the admin policies hold only for a session with MFA. Sessions of IAM Identity Center do not say that they have it."
  type        = bool
  default     = false
  nullable    = false
}

# --- what jobs read ---------------------------------------------------------------------------------

variable "sources" {
  description = <<-EOT
    What jobs read; each gets a policy document, and with events a queue.
    bucket, prefix: the folder on S3; a prefix ends in "/", or is "" for the whole bucket. Leave both out for a database of the catalogue.
    versioned: whether jobs list with versioned=True.
    limit_listing: whether only this folder may be listed. Spark needs false to read a directory itself; see docs/permissions.md.
    kms_key_arn: key of the objects, if they have one of yours.
    ledger: folder where jobs keep what they know of the files (ledger_uri), with its key if that is one of yours.
    inventory: folder of the S3 Inventory reports that jobs read in place of a listing, with its key if that is one of yours.
    catalog: database of the Glue Data Catalog with the tables and connections that from_catalog reads; all tables by default.
    events: a queue of its own for what S3 tells of the folder; {} for the defaults.
    events.notification_group: any name, the same for all sources of a bucket; for a bucket whose name Terraform knows only after the apply.
  EOT
  type = map(object({
    bucket        = optional(string)
    prefix        = optional(string)
    versioned     = optional(bool, false)
    limit_listing = optional(bool, true)
    kms_key_arn   = optional(string)
    ledger        = optional(object({ bucket = string, prefix = string, kms_key_arn = optional(string) }))
    inventory     = optional(object({ bucket = string, prefix = string, kms_key_arn = optional(string) }))
    catalog = optional(object({
      database    = string
      tables      = optional(list(string), ["*"])
      connections = optional(list(string), [])
    }))
    events = optional(object({
      visibility_timeout_seconds = optional(number, 3600)
      retention_seconds          = optional(number, 864000)
      max_receive_count          = optional(number, 20)
      kms_key_arn                = optional(string)
      notification_group         = optional(string)
    }))
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for name in keys(var.sources) : can(regex("^[a-z][a-z0-9-]{0,29}$", name)) && !endswith(name, "-dead")])
    error_message = "The sources must have names of 1 to 30 characters out of a-z, 0-9 and '-', the first a letter, and not end in \"-dead\", as the names of dead-letter queues do."
  }

  validation {
    condition = alltrue([
      for source in values(var.sources) :
      (source.bucket == null) == (source.prefix == null) && (source.bucket != null || (source.catalog != null && source.events == null))
    ])
    error_message = "The sources must each have a bucket and a prefix; only a source with a catalog and without events may leave both out."
  }

  validation {
    condition = alltrue(flatten([
      for source in values(var.sources) : [
        for folder in [source, source.ledger, source.inventory] :
        can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", folder.bucket)) if try(folder.bucket, null) != null
      ]
    ]))
    error_message = "The sources must each have the name of a bucket: 3 to 63 characters out of a-z, 0-9, '.' and '-'."
  }

  # A job's listing of "parking" would take "parking-old/" in, and "*" or "$" would not be themselves in a policy.
  validation {
    condition = alltrue(flatten([
      for source in values(var.sources) : [
        for folder in [source, source.ledger, source.inventory] :
        folder.prefix == "" || can(regex("^[^/*?$][^*?$]*/$", folder.prefix)) if try(folder.prefix, null) != null
      ]
    ]))
    error_message = "The sources must have prefixes that end in \"/\", do not begin with it, and hold none of * ? $; \"\" is the whole bucket."
  }

  # Who writes a ledger decides which files are known: the jobs of another source would skip what its role puts there.
  validation {
    condition = alltrue(flatten([
      for name, source in var.sources : [
        for other, another in var.sources :
        source.ledger.bucket != another.ledger.bucket || !try(startswith(another.ledger.prefix, source.ledger.prefix), false)
        if name != other && source.ledger != null && another.ledger != null
      ]
    ]))
    error_message = "The sources must not have a ledger in the folder of another's: each of their roles may write there. Give each source a folder of its own."
  }

  # And with it the role could write the files themselves.
  validation {
    condition = alltrue(flatten([
      for source in values(var.sources) : [
        for another in values(var.sources) :
        source.ledger.bucket != another.bucket || !try(startswith(another.prefix, source.ledger.prefix), false)
        if source.ledger != null && another.bucket != null
      ]
    ]))
    error_message = "The sources must not have a ledger in a folder that a source is in, or is: its role may write there, and nobody may write to a source."
  }

  # An alias or an id would do for a queue, and match nothing in a policy.
  validation {
    condition = alltrue(flatten([
      for source in values(var.sources) : [
        for user in [source, source.ledger, source.inventory, source.events] :
        can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", user.kms_key_arn)) if try(user.kms_key_arn, null) != null
      ]
    ]))
    error_message = "The sources must have a kms_key_arn that is the ARN of a key, arn:aws:kms:REGION:ACCOUNT:key/ID: not of an alias, and not its id alone."
  }

  validation {
    condition = alltrue([
      for source in values(var.sources) : source.catalog == null ? true : (
        length(source.catalog.tables) > 0 && alltrue([
          for name in concat([source.catalog.database], source.catalog.connections) : can(regex("^[^*?$/]{1,255}$", name))
        ]) && alltrue([for name in source.catalog.tables : can(regex("^[^?$/]{1,255}$", name))])
      )
    ])
    error_message = "The sources must have a catalog with a database, at least one table, and names of 1 to 255 characters without * ? $ /; the names of tables may hold *."
  }

  validation {
    condition = alltrue([
      for source in values(var.sources) : source.events == null ? true : (
        source.events.visibility_timeout_seconds >= 60 && source.events.visibility_timeout_seconds <= 43200 &&
        source.events.retention_seconds >= 3600 && source.events.retention_seconds < 1209600 &&
        source.events.max_receive_count >= 1 && source.events.max_receive_count <= 1000
      )
    ])
    error_message = "The sources must have events with visibility_timeout_seconds from 60 to 43200, retention_seconds from 3600 and below the 1209600 (14 days) of the dead-letter queue, and max_receive_count from 1 to 1000."
  }

  validation {
    condition = alltrue(flatten([
      for name, source in var.sources : [
        for other, another in var.sources :
        name == other || source.events == null || another.events == null || source.bucket != another.bucket || !try(startswith(another.prefix, source.prefix), false)
      ]
    ]))
    error_message = "The sources must not have events of one folder inside that of another: S3 sends each event to one queue only."
  }

  validation {
    condition = alltrue(flatten([
      for name, source in var.sources : [
        for other, another in var.sources :
        (source.bucket == another.bucket) == (coalesce(source.events.notification_group, source.bucket) == coalesce(another.events.notification_group, another.bucket))
        if source.events != null && another.events != null && source.bucket != null && another.bucket != null
      ]
    ]))
    error_message = "The sources must have the same notification_group if their events are of the same bucket, and others if they are not: S3 keeps one list of notifications for a bucket."
  }
}

variable "manage_bucket_notifications" {
  description = "Whether to point the buckets' notifications at the queues. This replaces all other notifications of these buckets; with false, do it where you keep those."
  type        = bool
  default     = true
  nullable    = false
}

variable "restrict_dead_letters" {
  description = "Whether each dead-letter queue takes messages of its own queue only. With false for an emulator that does not keep redrive_allow_policy: an apply would wait for it for minutes, and fail."
  type        = bool
  default     = true
  nullable    = false
}

# --- alarms -----------------------------------------------------------------------------------------

variable "create_alarms" {
  description = "Whether to make alarms on throttling and system errors of the table, and on dead letters of the queues."
  type        = bool
  default     = false
  nullable    = false
}

variable "jobs" {
  description = <<-EOT
    Jobs that get four alarms each, by their name in the table: stale, a plan open for too long, fenced, and commits that nobody knows of.
    runs_every_seconds: how often the job runs at least, in whole minutes up to a day.
    stale_after_seconds: from which age or lag on it is late.
    measure: "age", the time since the last commit; or "lag", the time since its cursor, for jobs with a cursor of time.
    plan_open_after_seconds: how old a plan may get that was begun and not committed; by default as stale_after_seconds.
  EOT
  type = map(object({
    runs_every_seconds      = number
    stale_after_seconds     = number
    measure                 = optional(string, "age")
    plan_open_after_seconds = optional(number)
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for name in keys(var.jobs) : can(regex("^[A-Za-z0-9][A-Za-z0-9 ._/:@=+-]{0,199}$", name))])
    error_message = "The jobs must have names of 1 to 200 characters that keep the rule of job names, [A-Za-z0-9][A-Za-z0-9 ._/:@=+-]*."
  }

  validation {
    condition     = alltrue([for job in values(var.jobs) : job.runs_every_seconds >= 60 && job.runs_every_seconds <= 86400 && job.runs_every_seconds % 60 == 0])
    error_message = "The jobs must have a runs_every_seconds from 60 to 86400 (a day) in whole minutes: CloudWatch takes no other."
  }

  validation {
    condition = alltrue([
      for job in values(var.jobs) : job.stale_after_seconds > 0 && (job.plan_open_after_seconds == null ? true : job.plan_open_after_seconds > 0)
    ])
    error_message = "The jobs must have a stale_after_seconds, and a plan_open_after_seconds if any, above 0."
  }

  validation {
    condition     = alltrue([for job in values(var.jobs) : contains(["age", "lag"], job.measure)])
    error_message = "The jobs must have a measure that is \"age\" or \"lag\"."
  }
}

variable "late_jobs" {
  description = <<-EOT
    Names of jobs that get an alarm when `watermarks jobs --metrics` finds them late: without a threshold, by their own rhythm.
    It needs that command on a schedule, at least every 15 minutes. Where the command stops, the alarms go off.
  EOT
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for name in var.late_jobs : can(regex("^[A-Za-z0-9][A-Za-z0-9 ._/:@=+-]{0,199}$", name))])
    error_message = "The late_jobs must be names of 1 to 200 characters that keep the rule of job names, [A-Za-z0-9][A-Za-z0-9 ._/:@=+-]*."
  }
}

variable "alarm_topic_arn" {
  description = "ARN of the SNS topic that is told when an alarm goes off and when it is over; null for nobody."
  type        = string
  default     = null

  validation {
    condition     = var.alarm_topic_arn == null || can(regex("^arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}$", var.alarm_topic_arn))
    error_message = "The alarm_topic_arn must be the ARN of an SNS topic, arn:aws:sns:REGION:ACCOUNT:NAME, and not a FIFO topic, which alarms cannot use."
  }
}
