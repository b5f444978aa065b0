/* The state word of one cached block that nobody references: a toucher pins it for its content, an allocator claims it
 * for somebody else, and the former owner's release may still be under way.
 *
 * Promises: an owner is alone; a pin holds the content that was looked up (the generation tells a recycled block);
 * the content is gone before a claimer uses the block.
 * PLANT_NO_GENERATION pins without comparing the generation. PLANT_READ_WRITE claims with a read and a write instead of a
 * compare-and-swap.
 */
#define FIRST 1              /* content named by the look-up */
#define SECOND 2             /* content of the next owner */

byte refs;                   /* the word: references, */
byte generation;             /* life number, */
bit hashed;                  /* content may be found */
byte content;
byte owners_of_new_content;

proctype toucher() {
  byte seen_generation, seen_refs;
  bit seen_hashed, pinned;
  atomic { seen_generation = generation; seen_hashed = hashed }     /* look-up */
  if
  :: !seen_hashed || content != FIRST -> goto done
  :: else -> skip
  fi;
  pinned = 0;
  do
  :: atomic { seen_refs = refs; seen_hashed = hashed }
     if
#ifndef PLANT_NO_GENERATION
     :: generation != seen_generation || !seen_hashed -> break
#endif
     :: else ->
        atomic {
          if
#ifndef PLANT_NO_GENERATION
          :: refs == seen_refs && generation == seen_generation && hashed -> refs++; pinned = 1
#else
          :: refs == seen_refs -> refs++; pinned = 1
#endif
          :: else -> skip
          fi
        };
        if :: pinned -> break :: else -> skip fi
     fi
  od;
  if
  :: pinned ->
     assert(content == FIRST);                                       /* what was looked up */
     atomic { assert(refs > 0); refs-- }
  :: else -> skip
  fi;
done: skip
}

proctype claimer() {
  bit mine;
  byte seen_refs;
  mine = 0;
#ifdef PLANT_READ_WRITE
  seen_refs = refs;
  if
  :: seen_refs == 0 -> refs = 1; generation++; hashed = 0; mine = 1
  :: else -> skip
  fi;
#else
  atomic {
    if
    :: refs == 0 -> refs = 1; generation++; hashed = 0; mine = 1
    :: else -> skip
    fi
  };
#endif
  if
  :: mine ->
     owners_of_new_content++;
     assert(owners_of_new_content == 1);
     content = SECOND;                                               /* writes its own keys and values */
     atomic { hashed = 1 };                                          /* publishes them */
     owners_of_new_content--;
     atomic { assert(refs > 0); refs-- }
  :: else -> skip
  fi
}

init {
  refs = 0; generation = 0; hashed = 1; content = FIRST;
  atomic { run toucher(); run toucher(); run claimer(); run claimer() }
  (_nr_pr == 1);
  assert(refs == 0)
}
