/*
 * One job, its head, its target: nothing lost and nothing doubled, whatever runs, crashes and people do.
 *
 * README.md beside this file says what each part stands for, how to check it, and which mutations it must catch.
 * Names of steps are those of docs/protocol.md. Everything in capitals can be set with -D.
 */

#ifndef RUNS
#define RUNS 2          /* processes that may be alive at once, each of which may die and begin again */
#endif
#ifndef BEGINS
#define BEGINS 3        /* attempts in all */
#endif
#ifndef DECISIONS
#define DECISIONS 1     /* of a person */
#endif
#ifndef ROWS
#define ROWS 2          /* of the source: a batch takes one or both */
#endif
#define VERSIONS (BEGINS + DECISIONS)
#define FENCES (BEGINS + DECISIONS)
#define FILES 2         /* of each attempt; two attempts may deal the same rows to them in different ways */

#define BIT(v) (1 << (v))
#define HAS(set, v) (((set) >> (v)) & 1)
#define WITHOUT(set, v) ((set) & (255 - BIT(v)))
#define AT(v, n) ((v) * FILES + (n))

/* --- the table: the head, and the log that it leaves ---------------------------------------------------------- */

byte version, fence;
bool claimed;           /* by the run whose fence is the head's; when its lease ends is anybody's guess, so never asked */
byte plan_next;         /* the watermark that follows the open plan; 0: no plan is open */
byte unpublished;       /* versions, as a set: committed, and maybe not yet seen by readers */
byte retracting;        /* versions, as a set: taken back by a person, and maybe still seen by readers */

byte watermark[VERSIONS + 1];   /* after each version */
byte winner[VERSIONS + 1];      /* the attempt whose output a version stands for; 0 for what people decided */

/* --- the sink: staged folders, and the target as a reader lists it --------------------------------------------- */

#ifdef NO_FENCE_IN_PATH
#define FOLDER(f, v) (v)
#else
#define FOLDER(f, v) (f)
#endif

byte staged[(FENCES + 1) * FILES];      /* which attempt wrote the file; 0: not there */
byte staged_version[FENCES + 1];        /* the name of a folder says it */
bool late_file[FENCES + 1];             /* of a task whose driver did not wait for it: on no manifest */
bool manifest[FENCES + 1];
byte target[(VERSIONS + 1) * FILES];    /* named by batch and number; its value is the attempt that wrote it */
byte copies[VERSIONS + 1];              /* requests to copy that S3 has read the source for, and not yet answered */

/* --- what only the proof knows --------------------------------------------------------------------------------- */

byte begins, decisions;
byte busy;              /* processes, as a set: those in the middle of something, alive or asleep */
byte taken_back;        /* versions that a person retracted */
byte forgotten;         /* of these, the ones that nobody looks after any more */

/* A file becomes visible. */
inline reveal(v, n, file) {
    assert(winner[v] != 0);             /* before the commit, and after a discard, no reader sees a row of a batch */
    assert(file == winner[v]);       /* nor ever one of a loser */
    assert(!HAS(forgotten, v));         /* what was retracted stays away */
    target[AT(v, n)] = file
}

/* A file is no longer visible. */
inline hide(v, n) {
    assert(target[AT(v, n)] == 0 || HAS(taken_back, v));    /* nobody deletes it but a retract */
    target[AT(v, n)] = 0
}

inline drop_folder(x) {
    d_step {
        manifest[x] = false;
        staged[AT(x, 0)] = 0;
        staged[AT(x, 1)] = 0;
        late_file[x] = false;
        staged_version[x] = 0
    }
}

/* Each step is one request, or one file operation. The process may die instead, and begins again or never. */
#define OR_DIE :: atomic { forget_all(); goto end_idle }

/* --- moving one file ------------------------------------------------------------------------------------------- */

/* The source is gone: another publisher has moved it, or a retract has deleted it. Else files are lost. */
inline expect_gone(v, f, n) {
    if
    :: atomic { target[AT(v, n)] != 0 }
    :: atomic { target[AT(v, n)] == 0 };
        if
        :: atomic { assert(!manifest[FOLDER(f, v)]) }
        OR_DIE
        fi
    OR_DIE
    fi
}

inline move(v, f, n) {
    if
#ifdef COPY
    /* S3: the source is read at one moment, and the copy is there at a later one. */
    :: atomic { staged[AT(FOLDER(f, v), n)] != 0 -> content = staged[AT(FOLDER(f, v), n)]; copies[v]++ };
        if
        :: atomic { copies[v]--; reveal(v, n, content); content = 0 }
        :: atomic { copies[v]--; forget_all(); goto end_idle }
        fi
#else
    /* A file system: a rename is there as a whole or not at all. */
    :: atomic {
        staged[AT(FOLDER(f, v), n)] != 0 ->
        reveal(v, n, staged[AT(FOLDER(f, v), n)]);
        staged[AT(FOLDER(f, v), n)] = 0
       }
#endif
    :: atomic { staged[AT(FOLDER(f, v), n)] == 0 }; expect_gone(v, f, n)
    OR_DIE
    fi
}

/* --- publish: by the committer, by an attempt that comes too late, by whoever begins next ----------------------- */

#define IS_COMPLETE(v) (target[AT(v, 0)] != 0 && target[AT(v, 1)] != 0)

inline delete_staged(f, v) {
    if
    :: atomic { staged[AT(FOLDER(f, v), 0)] = 0; staged[AT(FOLDER(f, v), 1)] = 0; late_file[FOLDER(f, v)] = false }
    OR_DIE
    fi
}

inline delete_manifest(f, v) {
    if
    :: atomic { manifest[FOLDER(f, v)] = false }
    OR_DIE
    fi
}

inline publish(v, f) {
#ifdef SWEEP_BEFORE_PUBLISH
    delete_staged(f, v);
#endif
    if
    :: atomic { manifest[FOLDER(f, v)] };
        move(v, f, 0);
        move(v, f, 1);
#ifdef LIST_NOT_MANIFEST
        assert(!late_file[FOLDER(f, v)])        /* its rows would be there twice */
#endif
    :: atomic { !manifest[FOLDER(f, v)] };
        /* Published and swept by another, or retracted. Else files are lost. */
        if
        :: atomic { IS_COMPLETE(v) }
        :: atomic { !IS_COMPLETE(v) };
            if
            :: atomic { assert(!HAS(unpublished, v)) }
            OR_DIE
            fi
        OR_DIE
        fi
    OR_DIE
    fi;
    delete_staged(f, v);
    delete_manifest(f, v)
}

/* --- retract: by the person who decided it, else by whoever begins next ----------------------------------------- */

#ifdef FORGET_AT_ONCE
#define NO_COPIES(v) true
#else
#define NO_COPIES(v) (copies[v] == 0)
#endif

inline delete_published(v) {
    if
    :: atomic { settled = NO_COPIES(v); hide(v, 0); hide(v, 1) }
    OR_DIE
    fi
}

inline retract(v, f) {
#ifdef RETRACT_TARGET_FIRST
    delete_published(v);
    delete_manifest(f, v);
    delete_staged(f, v)
#else
#ifdef RETRACT_MANIFEST_LAST
    delete_staged(f, v);
    delete_manifest(f, v);
#else
    delete_manifest(f, v);
    delete_staged(f, v);
#endif
    delete_published(v)
#endif
}

/* The next version of a set, from v on; VERSIONS + 1 if there is none. */
inline seek(set, v) {
    do
    :: v <= VERSIONS && !HAS(set, v) -> v++
    :: else -> break
    od
}

/* --- an attempt ------------------------------------------------------------------------------------------------ */

#define IS_MINE (claimed && fence == me)

/* Whatever a run writes of the head, it writes both lists as it knows them. */
inline write_lists() {
    forgotten = forgotten | (retracting & (255 - left_to_retract));
    unpublished = left_to_publish;
    retracting = left_to_retract
}

/* A process is dead, or at its end: nothing is left of what it knew. */
inline forget_all() {
    busy = busy & (255 - BIT(_pid));
    me = 0; mine = 0; left_to_publish = 0; left_to_retract = 0; v = 0; content = 0; settled = false
}

proctype Run() {
    byte me, mine, left_to_publish, left_to_retract, v, content;
    bool settled;

end_idle:
    /* begin. A lease may end at any moment, and the same run id waits for none: so anybody may, always. Processes are
       alike: the second one is for when the first one is at work, or asleep. */
    atomic {
        begins < BEGINS && version < VERSIONS && (_pid == 1 || HAS(busy, _pid - 1)) ->
        begins++;
        fence++;
        busy = busy | BIT(_pid);
        me = fence;
        mine = version + 1;
        claimed = true;
#ifdef DROP_UNPUBLISHED
        unpublished = 0;
#endif
        left_to_publish = unpublished;
        left_to_retract = retracting;
        v = 1;
        seek(left_to_retract | left_to_publish, v)
    };

    /* Before it plans: what earlier runs and people left to do. */
    do
    :: v <= VERSIONS ->
        if
        :: HAS(left_to_retract, v) ->
            retract(v, winner[v]);
            /* A copy under way may still show a file again. So it is forgotten only when none can be. */
            if
            :: settled -> left_to_retract = WITHOUT(left_to_retract, v); settled = false
            :: else
            fi
        :: else ->
            publish(v, winner[v]);
            left_to_publish = WITHOUT(left_to_publish, v)
        fi;
        atomic { v++; seek(left_to_retract | left_to_publish, v) }
    :: else -> v = 0; break
    od;

    /* freeze, or the plan that an earlier attempt left; or there is nothing new. */
    if
    :: atomic {
        IS_MINE && plan_next == 0 && watermark[version] < ROWS ->
        select(plan_next: watermark[version] + 1 .. ROWS);
        write_lists()
       }
    :: atomic { IS_MINE && plan_next != 0 }
    :: atomic {
        IS_MINE && plan_next == 0 && watermark[version] == ROWS ->
        claimed = false;
        write_lists();
        forget_all();
        goto end_idle
       }
    :: atomic { !IS_MINE -> forget_all(); goto end_idle }
    OR_DIE
    fi;

    /* stage. It asks for the fence before, but may fall asleep right after: so it may as well not ask. */
#ifdef NO_STAGING
    if
    :: atomic { reveal(mine, 0, me) }
    OR_DIE
    fi;
    if
    :: atomic { reveal(mine, 1, me) }
    OR_DIE
    fi;
#else
    if
    :: atomic { staged_version[FOLDER(me, mine)] = mine; staged[AT(FOLDER(me, mine), 0)] = me }
    OR_DIE
    fi;
    if
    :: atomic { staged[AT(FOLDER(me, mine), 1)] = me }
    :: goto failed
    OR_DIE
    fi;
#endif
#ifndef MANIFEST_AFTER_COMMIT
    if
    :: atomic { manifest[FOLDER(me, mine)] = true }
    OR_DIE
    fi;
#endif
#ifdef PUBLISH_BEFORE_COMMIT
    publish(mine, me);
#endif

    /* commit. */
    if
    :: atomic {
#ifdef COMMIT_BLIND
        version < VERSIONS ->
#else
        IS_MINE ->
#endif
        version++;
        watermark[version] = plan_next;
        winner[version] = me;
        plan_next = 0;
        claimed = false;
        left_to_publish = left_to_publish | BIT(version);
        write_lists();
        if
        :: goto won
        :: skip             /* it took effect, and the answer is lost */
        fi
       }
    :: atomic { !IS_MINE }
    :: goto failed
    OR_DIE
    fi;

    /* Not told: the head and the log say what became of it. If they cannot be read (unknown), nothing is deleted. */
    if
#ifdef DROP_ON_UNKNOWN
    :: goto lost
#endif
    :: atomic { winner[mine] == me -> left_to_publish = unpublished | BIT(mine); goto won }
    :: atomic { winner[mine] != me && winner[mine] != 0 -> left_to_publish = unpublished; goto already }
    :: atomic { winner[mine] == 0 -> goto lost }
    OR_DIE
    fi;

won:
#ifdef MANIFEST_AFTER_COMMIT
    if
    :: atomic { manifest[FOLDER(me, mine)] = true }
    OR_DIE
    fi;
#endif
    publish(mine, me);
    /* What losers staged. Named by version: a process that sleeps here and wakes later meets no later winner. */
    if
    :: atomic {
        v = 1;
        do
        :: v <= FENCES ->
            if
#ifdef SWEEP_ALL_VERSIONS
            :: v != me && staged_version[v] != 0 -> drop_folder(v)
#else
            :: v != FOLDER(me, mine) && staged_version[v] != 0 && staged_version[v] <= mine &&
               !(HAS(left_to_publish, staged_version[v]) && winner[staged_version[v]] == v) -> drop_folder(v)
#endif
            :: else
            fi;
            v++
        :: else -> break
        od;
        v = 0
       }
    OR_DIE
    fi;
    /* The note that readers see it. Given up if the head is another one by now. */
    atomic {
        if
        :: version == mine && fence == me && !claimed ->
            assert(HAS(taken_back, mine) || (target[AT(mine, 0)] == me && target[AT(mine, 1)] == me));
            unpublished = WITHOUT(left_to_publish, mine)
        :: skip
        fi;
        forget_all();
        goto end_idle
    };

already:
    /* Another attempt has committed this plan, which is a success: so its output is to be there. */
    atomic { drop_folder(FOLDER(me, mine)); v = 1; seek(left_to_publish, v) };
    do
    :: v <= VERSIONS -> publish(v, winner[v]); atomic { v++; seek(left_to_publish, v) }
    :: else -> break
    od;
    atomic { forget_all(); goto end_idle };

failed:
    /* The job's own code failed: abort. The plan stays. */
    atomic {
        if
        :: IS_MINE -> claimed = false; write_lists()
        :: else
        fi
    };
lost:
    atomic { drop_folder(FOLDER(me, mine)); forget_all(); goto end_idle }
}

/* --- a person ---------------------------------------------------------------------------------------------------- */

#ifdef RETRACT_FORGETS
#define REMEMBERED 0    /* the head keeps no list of what is being retracted */
#else
#define REMEMBERED left_to_retract
#endif

/* A rewind may go to a version only if no batch that it counts on was retracted since. */
inline choose_version() {
    select(to: 0 .. version - 1);
    left_to_retract = 0;
    v = 1;
    do
    :: v <= version ->
        if
        :: v > to && winner[v] != 0 && !HAS(taken_back, v) -> left_to_retract = left_to_retract | BIT(v)
#ifndef REWIND_TO_RETRACTED
        :: v <= to && HAS(taken_back, v) -> left_to_retract = 0; break
#endif
        :: else
        fi;
        v++
    :: else -> break
    od;
    v = 0
}

inline decide(following) {
    decisions++;
    watermark[version + 1] = following;
    version++;
    fence++;
    plan_next = 0;
    claimed = false;
    mine = version;
    busy = busy | BIT(_pid)
}

proctype Person() {
    byte me, mine, left_to_publish, left_to_retract, v, content;     /* as in Run; me stays 0 */
    byte to;
    bool settled;

end_idle:
    if
    :: atomic { decisions < DECISIONS && version < VERSIONS && plan_next != 0 -> decide(watermark[version]) };
       goto sweep
    :: atomic {
        decisions < DECISIONS && version < VERSIONS && version > 0 ->
        choose_version();
        if
        :: left_to_retract != 0
        :: else -> to = 0; goto end_idle
        fi;
#ifndef RETRACT_BEFORE_DECISION
        taken_back = taken_back | left_to_retract;
        unpublished = unpublished & (255 - left_to_retract);
        retracting = retracting | REMEMBERED;
        decide(watermark[to]);
        to = 0;
#endif
        v = 1;
        seek(left_to_retract, v)
       }
    fi;
    do
    :: v <= VERSIONS ->
        retract(v, winner[v]);
        if
        :: settled -> settled = false
        :: else -> atomic { forget_all(); goto end_idle }       /* a copy is under way: the list stays */
        fi;
        atomic { v++; seek(left_to_retract, v) }
    :: else -> v = 0; break
    od;
    /* The note that it is done. Given up if the head is another one by now. */
    if
    :: atomic {
        if
        :: version == mine && !claimed ->
            forgotten = forgotten | left_to_retract;
            retracting = retracting & (255 - left_to_retract)
        :: else
        fi
       }
    OR_DIE
    fi;
sweep:
    /* What was staged for the batch that has no plan any more: its number is that of the decision. */
    if
    :: atomic {
        v = 1;
        do
        :: v <= FENCES ->
            if
            :: staged_version[v] == mine -> drop_folder(v)
            :: else
            fi;
            v++
        :: else -> break
        od;
        v = 0
       }
    OR_DIE
    fi;
    atomic { forget_all(); goto end_idle }
}

/* --- a task of Spark that nobody waits for ----------------------------------------------------------------------- */

proctype LateTask() {
    byte x;

    atomic {
        select(x: 1 .. FENCES);
        if
        :: staged_version[x] != 0 -> late_file[x] = true
        :: else
        fi;
        x = 0
    }
}

/* --- when all have come to an end: one more run begins, and a reader looks ---------------------------------------- */

init {
    byte v, n, row, found;

    atomic {
        v = 0;
        do
        :: v < RUNS -> run Run(); v++
        :: else -> break
        od;
        run Person();
#ifdef LATE_TASK
        run LateTask();
#endif
        v = 1
    };

end_quiet:
    atomic {
        busy == 0 ->
        begins = BEGINS;
        decisions = DECISIONS;
        do
        :: v <= VERSIONS ->
            if
            :: HAS(retracting, v) ->
                manifest[FOLDER(winner[v], v)] = false;
                staged[AT(FOLDER(winner[v], v), 0)] = 0;
                staged[AT(FOLDER(winner[v], v), 1)] = 0;
                hide(v, 0);
                hide(v, 1)
            :: HAS(unpublished, v) ->
                if
                :: manifest[FOLDER(winner[v], v)] ->
                    n = 0;
                    do
                    :: n < FILES ->
                        if
                        :: staged[AT(FOLDER(winner[v], v), n)] != 0 -> reveal(v, n, staged[AT(FOLDER(winner[v], v), n)])
                        :: else
                        fi;
                        n++
                    :: else -> break
                    od
                :: else
                fi
            :: else
            fi;
            v++
        :: else -> break
        od;
        /* The target is exactly what is committed and was not taken back: all files, and those of the winner. */
        v = 1;
        do
        :: v <= VERSIONS ->
            if
            :: winner[v] != 0 && !HAS(taken_back, v) ->
                assert(target[AT(v, 0)] == winner[v] && target[AT(v, 1)] == winner[v])
            :: else ->
                assert(target[AT(v, 0)] == 0 && target[AT(v, 1)] == 0)
            fi;
            v++
        :: else -> break
        od;
        /* And each row of the source below the watermark is in one batch of these, each above it in none. */
        row = 0;
        do
        :: row < ROWS ->
            found = 0;
            v = 1;
            do
            :: v <= version ->
                if
                :: winner[v] != 0 && !HAS(taken_back, v) && watermark[v - 1] <= row && row < watermark[v] -> found++
                :: else
                fi;
                v++
            :: else -> break
            od;
            assert(found == (row < watermark[version]));
            row++
        :: else -> break
        od
    }
}
