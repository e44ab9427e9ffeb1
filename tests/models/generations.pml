/* The protocol of src/run/generations.c and src/run/publication.c, for the model checker spin. A step here is one atomic operation there; what
 * is done under the lock is still several steps, since readers do not take it. tests/models.sh runs it.
 *
 * Asserted in every reachable state: what a reader comes to hold is not freed, was verified, and is the generation that it takes it for (no
 * slot of another generation under the same number); what is freed has no lease and no use (no use after free, not too early), and is
 * freed once; at the end nothing but the current generation is left (not never). `held` and `used` count what is true, beside what
 * the protocol counts. Two readers and two publishers with two publications each, over two slots: each is used several times.
 *
 * Three variants are wrong on purpose, and the checker must find that:
 *     COUNT_ALONE   a slot is used again when its leases are gone, whatever its uses
 *     UNVERIFIED    the pointer is published before what is staged was verified
 *     BARE_STATE    reclaiming looks at the slot's state without its generation */
#ifndef READS
#define READS 1          /* leases that each reader takes */
#endif
#ifndef PUBLICATIONS
#define PUBLICATIONS 2   /* of each publisher */
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#define NONE SLOTS
#define OWNER 50

mtype = { Free, Staged, Published, Retiring, Reclaiming }

typedef Slot {
    byte generation;
    mtype state;
    byte leases;   /* OWNER - given back, or what is left of the leases */
    byte uses;
    bit alive;     /* the payload */
    bit verified;
    byte held, used;
}

Slot slot[SLOTS];
byte word_slot = NONE, word_count;
byte current = NONE, current_generation; /* the catalogue's handle, under the lock */
bit lock;
byte done;

inline take_lock() { atomic { !lock -> lock = 1 } }
inline drop_lock() { lock = 0 }

/* reclaim(slot at, generation): the reads and the exchange of the tag are steps of their own. */
inline reclaim(at, gen)
{
    leases = slot[at].leases;
    uses = slot[at].uses;
#ifdef COUNT_ALONE
    uses = 0;
#endif
    if
    :: leases == 0 && uses == 0 ->
        atomic {
            if
#ifdef BARE_STATE
            :: slot[at].state == Retiring ->
#else
            :: slot[at].state == Retiring && slot[at].generation == gen ->
#endif
                slot[at].state = Reclaiming; won = 1
            :: else -> won = 0
            fi
        }
        if
        :: won ->
            atomic { assert(slot[at].held == 0); assert(slot[at].used == 0); assert(slot[at].alive); slot[at].alive = 0 }
            atomic { slot[at].generation++; slot[at].state = Free }
        :: else
        fi
    :: else
    fi;
    d_step { leases = 0; uses = 0; won = 0; last = 0 } /* what is not read again makes no states */
}

inline give_back()
{
    atomic { slot[s].held--; slot[s].leases--; last = (slot[s].leases == 0) }
    if
    :: last -> reclaim(s, generation)
    :: else
    fi
}

inline use_end()
{
    atomic { slot[s].used--; slot[s].uses--; last = (slot[s].uses == 0) }
    if
    :: last -> reclaim(s, generation)
    :: else
    fi
}

proctype Reader()
{
    byte s, generation, leases, uses, n;
    bit last, won;
    do
    :: n == READS -> break
    :: else ->
        n++;
        atomic {
            s = word_slot; word_count++;
            if
            :: s != NONE -> slot[s].held++
            :: else
            fi
        }
        if
        :: s == NONE
        :: else ->
            atomic {
                generation = slot[s].generation;
                assert(slot[s].alive); assert(slot[s].verified)
            }
            atomic { slot[s].uses++; slot[s].used++; assert(slot[s].generation == generation) }
            if
            :: give_back(); use_end()   /* a pass that outlives its lease */
            :: use_end(); give_back()
            fi
        fi;
        d_step { s = 0; generation = 0 }
    od;
    done++
}

proctype Publisher()
{
    byte mine, generation, expected, expected_generation, old, count, leases, uses, n;
    bit last, won;
    do
    :: n == PUBLICATIONS -> break
    :: else ->
        n++;
        take_lock();
        expected = current; expected_generation = current_generation;
        mine = 0;
        do
        :: mine == SLOTS -> break
        :: mine < SLOTS && slot[mine].state == Free -> break
        :: mine < SLOTS && slot[mine].state != Free -> mine++
        od;
        if
        :: mine < SLOTS ->
            slot[mine].leases = OWNER;
            atomic { slot[mine].generation++; slot[mine].state = Staged }
        :: else
        fi;
        drop_lock();
        if
        :: mine == SLOTS
        :: else ->
            atomic { slot[mine].alive = 1; slot[mine].verified = 0 }
#ifndef UNVERIFIED
            slot[mine].verified = 1;
#endif
            take_lock();
            if
            :: current == expected && (current == NONE || current_generation == expected_generation) ->
                slot[mine].state = Published;
                atomic { old = word_slot; count = word_count; word_slot = mine; word_count = 0 }
                current = mine; current_generation = slot[mine].generation;
                if
                :: old == NONE
                :: else ->
                    generation = slot[old].generation;
                    slot[old].state = Retiring;
                    atomic { slot[old].leases = slot[old].leases + count - OWNER; last = (slot[old].leases == 0) }
                    if
                    :: last -> reclaim(old, generation)
                    :: else
                    fi
                fi
            :: else -> /* somebody published meanwhile */
                slot[mine].alive = 0;
                atomic { slot[mine].generation++; slot[mine].state = Free }
            fi;
            drop_lock()
#ifdef UNVERIFIED
            ; slot[mine].verified = 1
#endif
        fi;
        d_step { mine = 0; generation = 0; expected = 0; expected_generation = 0; old = 0; count = 0; last = 0 }
    od;
    done++
}

init
{
    byte i;
    atomic {
        do
        :: i == SLOTS -> break
        :: else -> slot[i].state = Free; i++
        od;
        i = 0;
        run Reader(); run Reader(); run Publisher(); run Publisher()
    }
    done == 4;
    i = 0;
    do
    :: i == SLOTS -> break
    :: else ->
        assert(slot[i].held == 0 && slot[i].used == 0);
        assert(i == current || (slot[i].state == Free && !slot[i].alive));
        i++
    od
}
