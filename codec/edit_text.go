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
	return o.closeText(start)
}

// quote returns the JSON string for s, in the arena, or "" in quotes if it does not fit.
func (o *Object) quote(s string) string {
	if !o.arenaFits(len(s) + len(`"" `)) {
		return `""`
	}
	start := len(o.arena)
	o.arena = AppendString(o.arena, s)
	return o.closeText(start)
}

// closeText ends the text that begins at start in the arena, and returns it. It appends
// a space, because a number must not run into the next text.
func (o *Object) closeText(start int) string {
	o.arena = append(o.arena, ' ')
	o.views.add(o.arena)
	return stringOf(o.arena[start : len(o.arena)-1])
}

// internText returns the offset of json, which it copies to the arena unless it is a
// view of the arena already.
func (o *Object) internText(json string) offset {
	at := offsetIn(stringOf(o.arena), json)
	if at < 0 {
		at = len(o.arena)
		o.arena = append(append(o.arena, json...), ' ')
		o.views.add(o.arena)
	}
	return offset(1 + len(o.text) + at)
}
