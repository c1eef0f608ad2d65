package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// A model applies the edits of an Object to the values that encoding/json
// decoded.
type model struct{ root any }

func newModel(t testing.TB, text []byte) *model {
	t.Helper()
	m := new(model)
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&m.root); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *model) get(path []string) (v any, ok bool) {
	v = m.root
	for _, token := range path {
		switch container := v.(type) {
		case map[string]any:
			if v, ok = container[token]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(container) {
				return nil, false
			}
			v = container[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// put sets the value at path, whose parent exists.
func (m *model) put(path []string, v any) {
	if len(path) == 0 {
		m.root = v
		return
	}
	token := path[len(path)-1]
	switch parent, _ := m.get(path[:len(path)-1]); parent := parent.(type) {
	case map[string]any:
		parent[token] = v
	case []any:
		i, _ := strconv.Atoi(token)
		parent[i] = v
	}
}

func (m *model) insert(path []string, v any) {
	above, token := path[:len(path)-1], path[len(path)-1]
	switch parent, _ := m.get(above); parent := parent.(type) {
	case map[string]any:
		parent[token] = v
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil {
			i = len(parent) // "-"
		}
		m.put(above, slices.Insert(slices.Clone(parent), i, v))
	}
}

func (m *model) remove(path []string) {
	above, token := path[:len(path)-1], path[len(path)-1]
	switch parent, _ := m.get(above); parent := parent.(type) {
	case map[string]any:
		delete(parent, token)
	case []any:
		i, _ := strconv.Atoi(token)
		m.put(above, slices.Delete(slices.Clone(parent), i, i+1))
	}
}

// paths returns the paths of all containers, the root's first.
func (m *model) paths() (all [][]string) {
	var walk func(v any, path []string)
	walk = func(v any, path []string) {
		path = slices.Clip(path)
		switch v := v.(type) {
		case map[string]any:
			all = append(all, path)
			for _, name := range slices.Sorted(maps.Keys(v)) {
				walk(v[name], append(path, name))
			}
		case []any:
			all = append(all, path)
			for i := range v {
				walk(v[i], append(path, strconv.Itoa(i)))
			}
		}
	}
	walk(m.root, nil)
	return all
}

// A session makes random edits to an Object and to the model of it.
type session struct {
	testing.TB
	rng    *rand.Rand
	object *codec.Object
	model  *model
	held   []held
	undone bool // later edits are undone, back to the only checkpoint
	log    []string
}

// A held Value was read before later edits.
type held struct {
	value codec.Value
	path  []string
	stale bool // it was replaced, removed or moved: no edit can start there
}

func (s *session) note(format string, a ...any) { s.log = append(s.log, fmt.Sprintf(format, a...)) }

// hold reads a Value, sometimes starting from an earlier one, and stores it.
func (s *session) hold() {
	path := s.somewhere()
	from, rest := s.from(path)
	if v := from.Get(rest...); v.Exists() {
		s.note("held[%d] = Get(%q)", len(s.held), path)
		s.held = append(s.held, held{value: v, path: slices.Clone(path)})
	}
}

// from returns a Value that an edit at path can start at, and the rest of the
// path. The Value may have been read before other edits.
func (s *session) from(path []string) (codec.Value, []string) {
	for range 3 {
		if len(s.held) == 0 {
			break
		}
		i := s.rng.IntN(len(s.held))
		if h := s.held[i]; !h.stale && hasPrefix(path, h.path) {
			s.note("from held[%d]", i)
			return h.value, slices.Clone(path[len(h.path):])
		}
	}
	if n := s.rng.IntN(len(path) + 1); s.rng.IntN(2) == 0 {
		if v := s.object.Get(path[:n]...); v.Exists() {
			s.note("from %q", path[:n])
			return v, slices.Clone(path[n:])
		}
	}
	return s.object.Root(), slices.Clone(path)
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

// replaced records that the Values read at path and below are stale. A null
// stands for its place.
func (s *session) replaced(path []string) {
	for i, h := range s.held {
		if hasPrefix(h.path, path) && (len(h.path) > len(path) || !h.value.IsNull()) {
			s.held[i].stale = true
		}
	}
}

// editStale makes an edit that starts at a stale Value. The edit must be refused.
func (s *session) editStale() {
	for i, h := range s.held {
		if !h.stale {
			continue
		}
		changes := s.object.Changes()
		s.object.Checkpoint()
		switch s.rng.IntN(4) {
		case 0:
			h.value.SetString("stale")
		case 1:
			h.value.Append("1", "a")
		case 2:
			h.value.Remove()
		case 3:
			h.value.Add("1", "a", "b")
		}
		fault, ok := errors.AsType[*codec.EditError](s.object.Err())
		if !ok || !strings.HasSuffix(fault.Reason, "read it again") || s.object.Changes() != changes {
			s.fail("edit of held[%d]: got %v", i, s.object.Err())
		}
		s.object.Rollback()
		s.held = slices.Delete(s.held, i, i+1)
		s.note("edited held[%d], which is stale", i)
		return
	}
}

// somewhere returns the path of an existing or new member or element.
func (s *session) somewhere() []string {
	paths := s.model.paths()
	path := paths[s.rng.IntN(len(paths))]
	switch v, _ := s.model.get(path); v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		if len(names) == 0 || s.rng.IntN(4) == 0 {
			return append(path, "new "+randomString(s.rng))
		}
		return append(path, names[s.rng.IntN(len(names))])
	case []any:
		return append(path, strconv.Itoa(s.rng.IntN(len(v)+1)))
	}
	return nil
}

// value returns JSON text and its decoded value: a new text, or one that is a
// view of the document.
func (s *session) value() (string, any) {
	path := s.somewhere()
	if _, ok := s.model.get(path); ok && s.rng.IntN(4) == 0 {
		text := s.object.Get(path...).JSON()
		return text, newModel(s, []byte(text)).root
	}
	text := new(style).append(nil, randomDocument(s.rng, s.rng.IntN(3)))
	return string(text), newModel(s, text).root
}

func (s *session) edit() {
	path := s.somewhere()
	text, value := s.value()
	old, exists := s.model.get(path)
	above := path[:len(path)-1]
	parent, _ := s.model.get(above)
	_, inArray := parent.([]any)
	from, rest := s.from(path)
	changes := s.object.Changes()
	switch s.rng.IntN(7) {
	case 0:
		if exists || !inArray {
			s.note("Set(%s, %q)", text, rest)
			from.Set(text, rest...)
			s.model.put(path, value)
			s.replacedIfSince(changes, path)
		}
	case 1:
		if exists || !inArray {
			s.setScalar(from, rest, path)
			s.replacedIfSince(changes, path)
		}
	case 2:
		array, isArray := old.([]any)
		if isArray || old == nil && (exists || !inArray) {
			s.note("Append(%s, %q)", text, rest)
			from.Append(text, rest...)
			s.model.put(path, append(slices.Clip(array), value))
			if !isArray {
				s.replaced(path)
			}
		}
	case 3:
		s.add(from, rest, path, text, value)
	case 4:
		if len(path) > 1 || !inArray || !exists {
			s.note("Remove(%q)", rest)
			from.Remove(rest...)
			if exists {
				s.model.remove(path)
				if path = path[:len(path):len(path)]; inArray {
					path = above
				}
				s.replaced(path)
			}
		}
	case 5:
		s.deeper(from, rest, path, old, exists || !inArray)
	case 6:
		if !s.undone {
			s.editStale()
		}
	}
}

func (s *session) replacedIfSince(changes int, path []string) {
	if s.object.Changes() != changes {
		s.replaced(path)
	}
}

func (s *session) setScalar(from codec.Value, rest, path []string) {
	switch s.rng.IntN(3) {
	case 0:
		plain := randomString(s.rng)
		s.note("SetString(%q, %q)", plain, rest)
		from.SetString(plain, rest...)
		s.model.put(path, plain)
	case 1:
		n := s.rng.Int64() - s.rng.Int64()
		s.note("SetInt(%d, %q)", n, rest)
		from.SetInt(n, rest...)
		s.model.put(path, json.Number(strconv.FormatInt(n, 10)))
	case 2:
		s.note("SetBool(true, %q)", rest)
		from.SetBool(true, rest...)
		s.model.put(path, true)
	}
}

func (s *session) add(from codec.Value, rest, path []string, text string, value any) {
	above := path[:len(path)-1]
	parent, _ := s.model.get(above)
	array, inArray := parent.([]any)
	changed := path
	if inArray {
		if len(path) == 1 && path[0] != strconv.Itoa(len(array)) {
			return // refused
		}
		if changed = above; path[len(path)-1] == strconv.Itoa(len(array)) {
			changed = path // nothing moves
		}
		if s.rng.IntN(4) == 0 && len(rest) > 0 {
			changed = path
			path, rest = append(slices.Clone(above), "-"), append(rest[:len(rest)-1:len(rest)-1], "-")
		}
	}
	s.note("Add(%s, %q)", text, rest)
	changes := s.object.Changes()
	from.Add(text, rest...)
	s.model.insert(path, value)
	if !inArray || slices.Equal(changed, above) {
		s.replacedIfSince(changes, changed)
	}
}

// deeper sets a value in objects that do not exist yet.
func (s *session) deeper(from codec.Value, rest, path []string, old any, mayPut bool) {
	if old != nil || !mayPut {
		return
	}
	s.model.put(path, map[string]any{"deeper": map[string]any{"a": "x"}})
	s.note("SetString(x, %q)", append(rest, "deeper", "a"))
	from.SetString("x", append(rest, "deeper", "a")...)
	s.replaced(path)
}

// detour makes edits that are undone, the last of which may have failed.
func (s *session) detour() {
	changes := s.object.Changes()
	before, _ := json.Marshal(s.model.root)
	kept := slices.Clone(s.held)
	s.note("Checkpoint()")
	s.object.Checkpoint()
	s.undone = true
	for range s.rng.IntN(4) {
		s.edit()
	}
	s.undone = false
	if s.rng.IntN(2) == 0 {
		s.note("Set(nonsense)")
		s.object.Set("nonsense", "a")
	}
	s.note("Rollback()")
	s.object.Rollback()
	s.model, s.held = newModel(s, before), kept
	if s.object.Changes() != changes {
		s.fail("got %d changes, want %d as before", s.object.Changes(), changes)
	}
}

// read compares one value.
func (s *session) read() {
	path := s.somewhere()
	want, ok := s.model.get(path)
	got := s.object.Get(path...)
	if got.Exists() != ok {
		s.fail("Get(%q): got %s, want %v", path, got.JSON(), want)
		return
	}
	if !ok {
		return
	}
	encoded, _ := json.Marshal(want)
	if !same(s, []byte(got.JSON()), encoded) || got.Kind() == codec.KindString && !got.EqualString(want.(string)) {
		s.fail("Get(%q): got %s, want %s", path, got.JSON(), encoded)
	}
	switch want := want.(type) {
	case map[string]any:
		if got.Len() != len(want) {
			s.fail("Len of %q: got %d, want %d", path, got.Len(), len(want))
		}
		for name, member := range got.Members() {
			if encoded, _ := json.Marshal(want[name]); !same(s, []byte(member.JSON()), encoded) {
				s.fail("member %q of %q: got %s, want %s", name, path, member.JSON(), encoded)
			}
		}
	case []any:
		if got.Len() != len(want) {
			s.fail("Len of %q: got %d, want %d", path, got.Len(), len(want))
		}
		for i, element := range got.Elements() {
			if encoded, _ := json.Marshal(want[i]); !same(s, []byte(element.JSON()), encoded) {
				s.fail("element %d of %q: got %s, want %s", i, path, element.JSON(), encoded)
			}
		}
	}
}

func (s *session) fail(format string, a ...any) {
	s.Helper()
	s.Errorf("after %q: "+format, append([]any{s.log}, a...)...)
}

// end compares the whole document, and every Edit with the change of the model.
func (s *session) end(before *model) {
	s.Helper()
	if err := s.object.Err(); err != nil {
		s.fail("Err: %v", err)
		return
	}
	want, _ := json.Marshal(s.model.root)
	if got := s.object.Root().AppendJSON(nil); !same(s, got, want) {
		s.fail("got %s, want %s", got, want)
	}
	s.checkPatch(before, want)
	for edit := range s.object.Edits() {
		path, ok := codec.AppendPath(nil, edit.Pointer)
		if !ok || len(path) == 0 {
			s.fail("Edits: %q is no pointer of a part", edit.Pointer)
			return
		}
		for _, half := range []struct {
			of   *model
			have codec.Value
		}{{before, edit.Before}, {s.model, edit.After}} {
			want, ok := half.of.get(path)
			encoded, _ := json.Marshal(want)
			if ok != half.have.Exists() || ok && !same(s, []byte(half.have.JSON()), encoded) {
				s.fail("Edits: %q: got %s, want %s", edit.Pointer, half.have.JSON(), encoded)
			}
		}
	}
}

// checkPatch applies the patch of the edits to the original document, with the
// library that kube-apiserver uses.
func (s *session) checkPatch(before *model, want []byte) {
	s.Helper()
	if _, ok := before.root.(map[string]any); !ok {
		return // the API server sends no other documents, and the library patches no others
	}
	encoded, _ := json.Marshal(before.root)
	patch := diff.AppendPatch(nil, s.object)
	if len(patch) == 0 {
		patch = []byte("[]")
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		s.fail("%v in patch %s", err, patch)
		return
	}
	if got, err := operations.Apply(encoded); err != nil || !same(s, got, want) {
		s.fail("patch %s: got %s, %v, want %s", patch, got, err, want)
	}
}

// TestEditModel makes random edits to every object of the corpus, with reads
// in between, and to random documents.
func TestEditModel(t *testing.T) {
	rng := seed.Rand(t)
	var object codec.Object
	f := func(name string, text []byte) {
		t.Helper()
		object.Reset(text)
		s := &session{TB: t, rng: rng, object: &object, model: newModel(t, text)}
		for range rng.IntN(15) {
			s.edit()
			if rng.IntN(3) == 0 {
				s.read()
			}
			if rng.IntN(3) == 0 {
				s.hold()
			}
			if rng.IntN(8) == 0 {
				s.detour()
			}
		}
		s.end(newModel(t, text))
		if t.Failed() {
			t.Fatalf("%s: %s", name, text)
		}
	}
	times := seed.Cases(t, 2, 6)
	if testing.Short() {
		times = 1
	}
	for range times {
		objects(t, func(name string, text []byte) { f(name, text) })
		for range 500 {
			doc := &document{open: '{'}
			for i := range 5 {
				doc.names = append(doc.names, strconv.Itoa(i))
				doc.items = append(doc.items, randomDocument(rng, 3))
			}
			f("random", (&style{rng: rng, spaced: true, escaped: true}).append(nil, doc))
		}
	}
}

// TestEditModelBeyondNodes makes random edits to documents with more elements
// than nodesMax. The edits start at Values without nodes.
func TestEditModelBeyondNodes(t *testing.T) {
	rng := seed.Rand(t)
	var object codec.Object
	for range 2 {
		b := []byte(`{"small":{"a":1},"list":[`)
		for i := range 600 {
			b = fmt.Appendf(b, `{"v":%d,"in":[{"x":null},"\u0041",[%d]]},`, i, i)
		}
		b = append(b, `0],"object":{`...)
		for i := range 300 {
			b = fmt.Appendf(b, `"k%d": {"v":[%d]} ,`, i, i)
		}
		b = append(b, `"end":{}},"last":[null]}`...)
		object.Reset(b)
		s := &session{TB: t, rng: rng, object: &object, model: newModel(t, b)}
		for _, element := range object.Get("list").Elements() {
			_ = element.Get("in").Len() // uses up all nodes
		}
		for range 50 {
			s.hold()
			s.hold()
			s.edit()
			if rng.IntN(10) == 0 {
				s.detour()
			}
			if t.Failed() {
				return
			}
		}
		s.end(newModel(t, b))
	}
}

// TestEditModelOfManyMembers makes random edits to objects with more members than
// nodesMax, which are found by an index.
func TestEditModelOfManyMembers(t *testing.T) {
	rng := seed.Rand(t)
	var object codec.Object
	for range 3 {
		var b bytes.Buffer
		b.WriteString(`{"small":{"a":1},"inner":{"large":{`)
		for i := range 1100 {
			fmt.Fprintf(&b, `"k%d":{"v":%d},`, i, i)
		}
		b.WriteString(`"k\u0041":0},"list":[1,2]},"other":{"x":{}}}`)
		object.Reset(b.Bytes())
		s := &session{TB: t, rng: rng, object: &object, model: newModel(t, b.Bytes())}
		large := []string{"inner", "large"}
		for i := range 300 {
			name, text := fmt.Sprint("k", rng.IntN(1300)), fmt.Sprintf(`{"v":[%d]}`, i)
			if rng.IntN(5) == 0 {
				name = []string{"kA", "kÄ", "k\n", ""}[rng.IntN(4)]
			}
			path := append(slices.Clip(large), name)
			switch rng.IntN(20) {
			default:
				s.note("Set(%s, %q)", text, path)
				object.Set(text, path...)
				s.model.put(path, newModel(t, []byte(text)).root)
			case 1, 2, 3, 4:
				s.note("Remove(%q)", path)
				object.Remove(path...)
				if _, ok := s.model.get(path); ok {
					s.model.remove(path)
				}
			case 5: // another object, and then the first kind again
				text := object.Get(large...).JSON()
				s.note("Set(itself, %q)", large)
				object.Set("{}", large...)
				if object.Get(path...).Exists() {
					s.fail("%q is in an empty object", path)
				}
				object.Set(text, large...)
			case 6:
				object.Checkpoint()
				for j := range 3 {
					object.Set("1", append(slices.Clip(large), fmt.Sprint("undone", j))...)
				}
				object.Set(text, path...)
				s.note("Rollback()")
				object.Rollback()
				path[len(path)-1] = "undone1"
			}
			value, ok := s.model.get(path)
			encoded, _ := json.Marshal(value)
			if got := object.Get(path...); got.Exists() != ok || ok && !same(t, []byte(got.JSON()), encoded) {
				s.fail("%q: got %s, want %s", path, got.JSON(), encoded)
			}
			if t.Failed() {
				return
			}
		}
		s.end(newModel(t, b.Bytes()))
	}
}
