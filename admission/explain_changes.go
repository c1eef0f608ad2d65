package admission

import (
	"slices"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/recording"
)

// comparedDepthMax is the depth from which values are compared as a whole, to bound recursion. Kubernetes' own
// types nest some 15 deep.
const comparedDepthMax = 64

// Changes returns the differences between two texts of the object of a review, without the values of secrets.
func Changes(review *codec.Review, before, after []byte) []Change {
	if string(before) == string(after) {
		return nil
	}
	var was, now codec.Object
	was.Reset(before)
	now.Reset(after)
	c := comparison{hidden: HiddenFields(review)}
	c.compare(was.Root(), now.Root())
	if was.Err() != nil || now.Err() != nil {
		return nil // one of them is no object: the review is DELETE, say
	}
	return c.changes
}

// HiddenFields returns the paths in the object and oldObject of a review that may hold secrets.
func HiddenFields(review *codec.Review) [][]string {
	isSecret := false
	for _, r := range [...]codec.GroupVersionResource{review.Resource(), review.RequestResource()} {
		isSecret = isSecret || r.Group == "" && r.Resource == "secrets"
	}
	return recording.SecretFields(review.Kind().Kind, isSecret)
}

// A comparison collects the differences between two objects.
type comparison struct {
	hidden  [][]string
	path    []string
	changes []Change
}

func (c *comparison) compare(was, now codec.Value) {
	kind := now.Kind()
	switch {
	case was.Exists() && now.Exists() && was.JSON() == now.JSON(), len(c.changes) >= ExplainedMax:
	case kind == was.Kind() && kind == codec.KindObject && len(c.path) < comparedDepthMax:
		c.compareMembers(was, now)
	case kind == was.Kind() && kind == codec.KindArray && len(c.path) < comparedDepthMax:
		c.compareElements(slices.Collect(elements(was)), slices.Collect(elements(now)))
	default:
		c.add(was, now)
	}
}

func elements(array codec.Value) func(yield func(codec.Value) bool) {
	return func(yield func(codec.Value) bool) {
		for _, element := range array.Elements() {
			if !yield(element) {
				return
			}
		}
	}
}

func (c *comparison) compareMembers(was, now codec.Value) {
	olds, news := make(map[string]codec.Value), make(map[string]bool)
	for name, member := range was.Members() {
		olds[name] = member
	}
	for name, member := range now.Members() {
		news[name] = true
		c.below(name, olds[name], member)
	}
	for name, member := range was.Members() {
		if !news[name] {
			c.below(name, member, codec.Value{})
		}
	}
}

// compareElements compares elements one by one between those at the start and end that are equal.
func (c *comparison) compareElements(was, now []codec.Value) {
	shorter, first, last := min(len(was), len(now)), 0, 0
	for first < shorter && was[first].JSON() == now[first].JSON() {
		first++
	}
	for last < shorter-first && was[len(was)-1-last].JSON() == now[len(now)-1-last].JSON() {
		last++
	}
	for i := first; i < max(len(was), len(now))-last; i++ {
		var old, added codec.Value
		if i < len(was)-last {
			old = was[i]
		}
		if i < len(now)-last {
			added = now[i]
		}
		c.below(codec.Index(i), old, added)
	}
}

func (c *comparison) below(name string, was, now codec.Value) {
	c.path = append(c.path, name)
	c.compare(was, now)
	c.path = c.path[:len(c.path)-1]
}

func (c *comparison) add(was, now codec.Value) {
	change := Change{Operation: "replace", Old: c.shown(was), New: c.shown(now)}
	switch {
	case !was.Exists():
		change.Operation = "add"
	case !now.Exists():
		change.Operation = "remove"
	}
	var pointer []byte
	for _, name := range c.path {
		pointer = codec.AppendPointerToken(append(pointer, '/'), name)
	}
	change.Path = string(pointer)
	c.changes = append(c.changes, change)
}

// shown returns a value at the path of the comparison as JSON.
func (c *comparison) shown(v codec.Value) string {
	switch {
	case !v.Exists():
		return ""
	case slices.ContainsFunc(c.hidden, func(field []string) bool { return isPrefix(field, c.path) || isPrefix(c.path, field) }):
		return HiddenValue
	}
	return ShownValue(v.JSON())
}

// isPrefix reports whether path begins with start.
func isPrefix(start, path []string) bool {
	return len(start) <= len(path) && slices.Equal(start, path[:len(start)])
}
