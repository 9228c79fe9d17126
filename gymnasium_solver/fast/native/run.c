
/* After the generated text, which has run_flushed. */
void run(Call *c) {
    uint64_t mode = begin_flush();
    run_flushed(c);
    end_flush(mode);
}
