package diff

import (
	"bytes"
	"errors"
	"slices"

	"github.com/fastadmit/fastadmit/codec"
)

// Change applies the differences between two JSON documents to o. The documents encode o,
// or some of its fields, before and after a change. Change sets values that differ or
// exist only in after, and removes members that exist only in before. Other fields of o
// do not change.
//
// Equal parts are skipped; if the documents are equal, Change only compares bytes. A
// value is replaced as a whole if it is nested deeper than 64 levels, or if it is an
// array that has another length in o than in before.
//
// The error is that of o (see codec.Object.Err), or says that a document is not JSON. If
// a document or the changes exceed a limit of package codec, the error is a
// *codec.SizeError, and o has it too.
func Change(o *codec.Object, before, after []byte) error {
	if bytes.Equal(before, after) {
		return o.Err()
	}
	var was, now codec.Object
	was.Reset(before)
	now.Reset(after)
	c := changer{object: o}
	c.change(was.Root(), now.Root())
	for _, err := range [...]error{was.Err(), now.Err()} {
		if size, ok := errors.AsType[*codec.SizeError](err); ok {
			o.TooLarge(size)
		} else if err != nil {
			return err
		}
	}
	return o.Err()
}

// A changer applies changes to an object.
type changer struct {
	object *codec.Object
	path   []string // of the value that is being compared
}

// change applies the difference between was and now to the value at the path. was is
// missing if the value is new.
func (c *changer) change(was, now codec.Value) {
	if c.object.Err() != nil || was.Exists() && same(was, now) {
		return
	}
	if kind := now.Kind(); kind == was.Kind() && len(c.path) < depthMax {
		switch kind {
		case codec.KindObject:
			c.changeMembers(was, now)
			return
		case codec.KindArray:
			if array := c.object.Get(c.path...); array.Kind() == kind && array.Len() == was.Len() {
				c.changeElements(array, was, now)
				return
			}
		}
	}
	c.object.Set(now.JSON(), c.path...)
}

func (c *changer) changeMembers(was, now codec.Value) {
	old := make(map[string]codec.Value)
	for name, member := range was.Members() {
		old[name] = member
	}
	at := len(c.path)
	c.path = append(c.path, "")
	for name, member := range now.Members() {
		c.path[at] = name
		c.change(old[name], member)
		delete(old, name)
	}
	for name := range was.Members() {
		if _, removed := old[name]; removed {
			c.path[at] = name
			c.object.Remove(c.path...)
		}
	}
	c.path = c.path[:at]
}

// changeElements applies the differences between the elements of was and now to array,
// which is at the path and has as many elements as was.
func (c *changer) changeElements(array, was, now codec.Value) {
	old, elements := elementsOf(was), elementsOf(now)
	shorter := min(len(old), len(elements))
	first, last := 0, 0
	for first < shorter && same(old[first], elements[first]) {
		first++
	}
	for last < shorter-first && same(old[len(old)-1-last], elements[len(elements)-1-last]) {
		last++
	}
	paired := shorter - last
	at := len(c.path)
	c.path = append(c.path, "")
	for i := first; i < paired; i++ {
		c.path[at] = codec.Index(i)
		c.change(old[i], elements[i])
	}
	c.path = c.path[:at]
	if len(old) == len(elements) || c.object.Err() != nil {
		return
	}
	var remaining []codec.Value
	for i, element := range array.Elements() {
		if i < paired || i >= len(old)-last {
			remaining = append(remaining, element)
		}
	}
	text := []byte{'['}
	for _, element := range slices.Concat(remaining[:paired], elements[paired:len(elements)-last], remaining[paired:]) {
		text = append(element.AppendJSON(text), ',')
	}
	text[len(text)-1] = ']' // in place of the last comma
	if len(elements) == 0 {
		text = []byte("[]")
	}
	c.object.Set(string(text), c.path...)
}

func elementsOf(array codec.Value) []codec.Value {
	var elements []codec.Value
	for _, element := range array.Elements() {
		elements = append(elements, element)
	}
	return elements
}
