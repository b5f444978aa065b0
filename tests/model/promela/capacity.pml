/* Capacity: reserve on one counter first, claim after, credit only after the block is reachable.
 *
 * Blocks are free (reachable or on their way) or held. Allocators reserve one unit and then look for a reachable block;
 * whoever scans everything in vain while nobody else claimed would be waiting for another process.
 * Promise: with a reservation in hand and no claim by somebody else during the scan, the scan finds a block.
 * PLANT_EARLY_CREDIT credits before the block is reachable: the promise must break.
 */
#define BLOCKS 2
#define ROUNDS 2

byte capacity;               /* free minus reserved: what can still be promised */
bit reachable[BLOCKS];       /* in a stack or ring where a scan finds it */
byte claims;                 /* number of claims so far: lets a scan see that somebody made progress */
byte held;

inline release(b) {
#ifdef PLANT_EARLY_CREDIT
  atomic { capacity++; held-- }
  reachable[b] = 1
#else
  reachable[b] = 1;
  atomic { capacity++; held-- }
#endif
}

proctype worker() {
  byte round, i, seen_claims, mine;
  bit got;
  round = 0;
  do
  :: round < ROUNDS ->
     if
     :: atomic { capacity > 0 -> capacity-- }         /* compare-and-swap that succeeds only above 0 */
        got = 0;
        do
        :: got -> break
        :: else ->
           seen_claims = claims;
           i = 0;
           do
           :: i < BLOCKS && !got ->
              atomic {                                 /* compare-and-swap on the state word */
                if
                :: reachable[i] -> reachable[i] = 0; claims++; held++; got = 1; mine = i
                :: else -> skip
                fi
              };
              i++
           :: else -> break
           od;
           /* a vain scan proves that another process claimed meanwhile */
           assert(got || claims != seen_claims)
        od;
        assert(held <= BLOCKS);
        release(mine)
     :: capacity == 0 -> skip                          /* shortage: an answer, nobody waits */
     fi;
     round++
  :: else -> break
  od
}

init {
  byte i;
  capacity = BLOCKS;
  i = 0;
  do
  :: i < BLOCKS -> reachable[i] = 1; i++
  :: else -> break
  od;
  atomic { run worker(); run worker(); run worker() }
  (_nr_pr == 1);                                       /* all done: everything is free again */
  assert(capacity == BLOCKS && held == 0)
}
