package codec

// Compose returns JSON text for an edit, which build appends to its argument. It
// does not allocate: the text is in the memory of o, and valid until o is reset.
// After an error it returns "". build must not use o.
func (o *Object) Compose(build func(dst []byte) []byte) string {
	if o.err != nil {
		return ""
	}
	start, capacity := len(o.arena), cap(o.arena)
	o.arena = build(o.arena)
	o.grown(capacity)
	return o.kept(start)
}

// quote returns the JSON string for s, in the arena, or an empty one if it does
// not fit.
func (o *Object) quote(s string) string {
	if !o.arenaFits(len(s) + len(`"" `)) {
		return `""`
	}
	start := len(o.arena)
	o.arena = AppendString(o.arena, s)
	return o.kept(start)
}

// kept returns the text that begins at start in the arena and is its last, after
// putting a space behind it: a number must not run into the next text.
func (o *Object) kept(start int) string {
	o.arena = append(o.arena, ' ')
	o.lent.add(o.arena)
	return stringOf(o.arena[start : len(o.arena)-1])
}

// keep returns where json is in the arena, after putting it there if it is not.
func (o *Object) keep(json string) offset {
	at := offsetIn(stringOf(o.arena), json)
	if at < 0 {
		at = len(o.arena)
		o.arena = append(append(o.arena, json...), ' ')
		o.lent.add(o.arena)
	}
	return offset(1 + len(o.text) + at)
}
