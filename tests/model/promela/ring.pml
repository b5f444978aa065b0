/* One ring of a free order: producers take a ticket and put their block into its slot, a consumer that meets a ticket
 * without a block kills it and goes on. Slots are told apart by lap, M slots wrap.
 *
 * Promise: every put is either taken exactly once or its producer learns that the ticket is dead; a suspended producer
 * stops nobody. PLANT_NO_KILL lets the consumer wait instead: a process that does not finish must show up as a deadlock.
 * PLANT_NO_LAP ignores laps when a slot is written: a late producer overwrites a newer block.
 */
#define M 2                 /* slots */
#define PRODUCERS 3
#define DEAD 255

byte tail, head;
byte slot_lap[M];            /* lap that wrote the slot, starting at 0 = never; ticket t has lap t/M + 1 */
byte slot_block[M];
byte taken[PRODUCERS + 1];
byte outcome[PRODUCERS + 1]; /* 1 stored, 2 dead, 3 ring full */
byte finished;

#define LAP(t) ((t) / M + 1)

proctype producer(byte block) {
  byte ticket;
  atomic { ticket = tail; tail++ }                    /* fetch-and-add */
  if
  :: goto stopped                                      /* suspended for ever with a ticket in hand */
  :: skip
  fi;
  atomic {                                             /* compare-and-swap on the slot */
    if
#ifndef PLANT_NO_LAP
    :: slot_lap[ticket % M] >= LAP(ticket) -> outcome[block] = 2
#endif
#ifdef PLANT_NO_LAP
    :: slot_lap[ticket % M] == LAP(ticket) && slot_block[ticket % M] == DEAD -> outcome[block] = 2
#endif
    :: else ->
       if
       :: ticket - head >= M && ticket >= head -> outcome[block] = 3
       :: else ->
#ifdef PLANT_NO_LAP
          assert(slot_lap[ticket % M] <= LAP(ticket));
#endif
          slot_lap[ticket % M] = LAP(ticket);
          slot_block[ticket % M] = block;
          outcome[block] = 1
       fi
    fi
  };
stopped:
  finished++
}

proctype consumer() {
  byte h, block, rounds;
  bit filled, older;
  rounds = 0;
  do
  :: rounds < PRODUCERS && !(finished == PRODUCERS && head >= tail) ->
     h = head;
     if
     :: h >= tail -> skip                              /* empty: an answer */
     :: else ->
        atomic {
          filled = (slot_lap[h % M] == LAP(h));
          older = (slot_lap[h % M] < LAP(h));
          block = slot_block[h % M]
        };
        if
        :: older ->
#ifdef PLANT_NO_KILL
           (slot_lap[h % M] >= LAP(h))                 /* waits for the producer */
#else
           atomic {                                    /* compare-and-swap to dead */
             if
             :: slot_lap[h % M] < LAP(h) -> slot_lap[h % M] = LAP(h); slot_block[h % M] = DEAD
             :: else -> skip
             fi
           }
#endif
        :: filled ->
           atomic {                                    /* compare-and-swap on head */
             if
             :: head == h ->
                head = h + 1;
                if
                :: block != DEAD -> taken[block]++; assert(taken[block] == 1)
                :: else -> skip
                fi
             :: else -> skip
             fi
           }
        :: else -> skip                                /* a newer lap: head is stale, look again */
        fi
     fi;
     rounds++
  :: else -> break
  od
}

init {
  byte b, t, left;
  atomic {
    b = 1;
    do
    :: b <= PRODUCERS -> run producer(b); b++
    :: else -> break
    od;
    run consumer();
    run consumer()
  }
  (_nr_pr == 1);
  /* what was stored and not taken is still in its slot: nothing is lost */
  b = 1;
  do
  :: b <= PRODUCERS ->
     if
     :: outcome[b] == 1 && taken[b] == 0 ->
        left = 0;
        t = 0;
        do
        :: t < M -> if :: slot_block[t] == b -> left = 1 :: else -> skip fi; t++
        :: else -> break
        od;
        assert(left == 1)
     :: else -> skip
     fi;
     assert(!(outcome[b] != 1 && taken[b] > 0));
     b++
  :: else -> break
  od
}
