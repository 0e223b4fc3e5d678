/* The buffer protocol of captured arrays under Python 3.11, where a class cannot define it. A callback of ctypes cannot
   raise: it gives the array alone, and NumPy's own function, which may refuse the request, is called from here. Needs no
   header of Python. */

typedef int get_buffer(void *object, void *view, int flags);

static get_buffer *original;
static void *(*give)(void *object);
static void (*drop)(void *object);
static const void *nothing;

/* `giver` answers a new reference to an array, or to `none`. */
void shoal_buffers_set(get_buffer *numpy, void *(*giver)(void *), void (*decref)(void *), const void *none) {
    original = numpy;
    give = giver;
    drop = decref;
    nothing = none;
}

int shoal_buffers_get(void *object, void *view, int flags) {
    void *array = give(object);
    const int code = array == nothing ? -1 : original(array, view, flags);
    drop(array);
    return code;
}
