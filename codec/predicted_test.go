package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// TestShortWay decodes every recording of kube-apiserver with the shortcuts for its
// form. The general code for each must have the same result.
func TestShortWay(t *testing.T) {
	lasts, objects := 0, 0
	for _, name := range corpus.Names() {
		var r Review
		o := &r.envelope
		o.reset(string(corpus.MustRead(name)))
		c := o.enter(o.text, 0)
		if kind, apiVersion := c.predictedEnvelope(); kind != `"AdmissionReview"` ||
			!strings.HasPrefix(apiVersion, `"admission.k8s.io/v1`) {
			t.Errorf("%s: got %s and %s", name, kind, apiVersion)
		}
		if !c.member() || c.written() != "request" {
			t.Fatalf("%s: got %s behind the version", name, c.written())
		}
		in := o.enter(c.text, c.pos)
		if !in.member() || in.written() != "uid" {
			t.Fatalf("%s: got %s first", name, in.written())
		}
		taken := make(map[field]bool)
		var last [fieldCount]string
		for f := fieldUID; ; {
			before := r.fields
			if r.predictedLastObject(f, in.text[in.pos:]) {
				lasts++
				last, r.fields = r.fields, before
			}
			value, ok := r.predictedValue(f, in.text[in.pos:])
			if taken[f] = ok; ok {
				in.pos += len(value)
			} else if value, ok = in.value(); !ok {
				t.Fatal(o.err)
			}
			r.setField(f, value)
			next, ok := in.predictedField(f + 1)
			if !ok {
				break
			}
			f = next
		}
		if in.member() || o.err != nil {
			t.Errorf("%s: got %s, %v behind what is predicted", name, in.written(), o.err)
		}
		if strings.LastIndexByte(r.fields[fieldOptions], '{') == 0 { // otherwise it is not empty
			objects++
			if last != r.fields {
				t.Errorf("%s: got %q, want %q", name, last, r.fields)
			}
		}
		k := r.fields[fieldKind]
		if both := taken[fieldRequestKind] && taken[fieldRequestResource]; k != "" && k == r.fields[fieldRequestKind] && !both {
			t.Errorf("%s: the fields of the original request are compared with those of this: %v", name, taken)
		}
		if !taken[fieldObject] && kindOfText(r.fields[fieldObject]) == KindObject ||
			!taken[fieldOldObject] && kindOfText(r.fields[fieldOldObject]) == KindObject {
			t.Errorf("%s: got %v, want object and oldObject opened", name, taken)
		}
		nodes := len(r.Object.nodes)
		if r.Object.setText(r.fields[fieldObject]); len(r.Object.nodes) != nodes || taken[fieldObject] && nodes < 3 {
			t.Errorf("%s: %d nodes of the object, then %d", name, nodes, len(r.Object.nodes))
		}
		comparePredicted(t, r.fields[fieldKind], "kind", true)
		comparePredicted(t, r.fields[fieldResource], "resource", true)
	}
	if lasts == 0 || lasts != objects {
		t.Errorf("the end of the last object is told by what comes behind it in %d of %d recordings with options", lasts, objects)
	}
}

// comparePredicted compares a group, version and name with the result of encoding/json.
func comparePredicted(t *testing.T, text, last string, want bool) {
	t.Helper()
	group, version, name, ok := predictedGroupVersion(text, last)
	if !ok {
		if want {
			t.Errorf("%s is not predicted", text)
		}
		return
	}
	var members map[string]any
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&members); err != nil {
		t.Errorf("%s: predicted, and %v", text, err)
		return
	}
	if wanted := map[string]any{"group": group, "version": version, last: name}; !reflect.DeepEqual(members, wanted) {
		t.Errorf("%s: got %v", text, wanted)
	}
}

// TestPredictedGroupVersion alters a byte of a group, version and kind, cuts them, and
// leaves members out.
func TestPredictedGroupVersion(t *testing.T) {
	const text = `{"group":"g","version":"v1","kind":"K"}`
	comparePredicted(t, text+`,"x":1`, "kind", true)
	for _, other := range []string{`{}`, `{"group":"g"}`, `{"group":"g","version":"v1"}`,
		`{"group":"g","version":"v1","x":"K"}`, `{"version":"v1","group":"g","kind":"K"}`,
		`{"group":"g","version":"v1","kind":"K","x":"y"}`, `{"group":"\u0061","version":"v1","kind":"K"}`,
		`{"group":"g","version":"é","kind":"K"}`} {
		comparePredicted(t, other, "kind", false)
	}
	for i := range text {
		comparePredicted(t, text[:i], "kind", false)
		for c := range byte(utf8.RuneSelf) {
			if altered := text[:i] + string(rune(c)) + text[i+1:]; c >= ' ' {
				comparePredicted(t, altered, "kind", false)
			}
		}
	}
}

// TestEightBytesAtATime compares the functions that read eight bytes at a time with
// ones that read one.
func TestEightBytesAtATime(t *testing.T) {
	end := func(text string, pos int, stops func(c byte) bool) int {
		for pos < len(text) && !stops(text[pos]) {
			pos++
		}
		return pos
	}
	isQuote := func(c byte) bool { return c == '"' || c == '\\' }
	isOther := func(c byte) bool { return isQuote(c) || c < ' ' || c >= utf8.RuneSelf }
	check := func(text string) {
		for pos := range min(len(text)+1, 10) {
			if got, want := quoteAt(text, pos), end(text, pos, isQuote); got != want {
				t.Fatalf("quoteAt(%q, %d): got %d, want %d", text, pos, got, want)
			}
			if got, want := plainEnd(text, pos), end(text, pos, isOther); got != want {
				t.Fatalf("plainEnd(%q, %d): got %d, want %d", text, pos, got, want)
			}
		}
	}
	for length := range 26 {
		check(strings.Repeat("a", length))
		for at := range length {
			for c := range 256 {
				text := []byte(strings.Repeat("a", length))
				text[at] = byte(c)
				check(string(text))
			}
		}
	}
	rng := seed.Rand(t)
	for range 20_000 {
		text := make([]byte, rng.IntN(30))
		for i := range text {
			text[i] = "\"\\\x00\x1f !#[]\x7f\x80\xffab"[rng.IntN(14)]
		}
		check(string(text))
	}
}

// TestSimpleEnd expects that the values that plugins write are simple, and that no
// invalid JSON is.
func TestSimpleEnd(t *testing.T) {
	for text, want := range map[string]bool{
		`""`: true, `"a"`: true, `"eight by tes and more"`: true, `0`: true, `-0`: true, `7`: true, `-12`: true, `100`: true,
		`true`: true, `false`: true, `null`: true,
		`{}`: true, `[]`: true, `[1]`: true, `[1,2]`: true, `{"a":1}`: true, `{"a":1,"b":[{"c":"d"}]}`: true, `[[],{}]`: true,
		`"\n"`: false, `"é"`: false, `01`: false, `-01`: false, `-`: false, ``: false, ` 1`: false, `1.5`: false,
		`[1, 2]`: false, `{"a" :1}`: false, `{1:2}`: false,
		`[1,]`: false, `{"a":1,}`: false, `{"a"}`: false, `[`: false, `{`: false, `[1`: false, `{"a":`: false, `{"a":1`: false,
		`"a`: false, `[1}`: false, `{]`: false, `nul`: false,
	} {
		if got := simpleEnd(text, 0, 0) == len(text); got != (want && text != "") {
			t.Errorf("%s: got %v", text, got)
		}
		if in := "[" + text; want && simpleEnd(in, 1, 0) != len(in) {
			t.Errorf("%s behind a bracket: got %d", text, simpleEnd(in, 1, 0))
		}
	}
	for depth := simpleDepthMax - 1; depth <= simpleDepthMax+1; depth++ {
		for _, text := range []string{strings.Repeat("[", depth) + "1" + strings.Repeat("]", depth),
			strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)} {
			if got := simpleEnd(text, 0, 0) == len(text); got != (depth <= simpleDepthMax) {
				t.Errorf("%s: got %v", text, got)
			}
		}
	}
}

// TestResetLeavesNothing expects all fields of a reused review to be as in a new one,
// except for the capacity of slices.
func TestResetLeavesNothing(t *testing.T) {
	var r Review
	wide := `{"a":[{"b":"\n"}],"c":{` + strings.Repeat(`"x":1,`, 2*nodesMax) + `"y":2}}`
	body := strings.NewReplacer("OBJECT", wide).Replace(
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"\u0031",` +
			`"kind":{"group":"","version":"v1","kind":"Pod"},` +
			`"resource":{"group":"","version":"v1","resource":"pods"},"name":"n","object":OBJECT,"oldObject":OBJECT,` +
			`"options":OBJECT,"dryRun":1}}`)
	use := func() {
		if err := r.Decode([]byte(body)); err == nil {
			t.Error("dryRun is no boolean, and no error")
		}
		if err := r.Decode([]byte(strings.Replace(body, `"dryRun":1`, `"dryRun":true`, 1))); err != nil {
			t.Fatal(err)
		}
		_, _, _ = r.UID(), r.Name(), r.Resource()
		r.SetContext(t.Context())
		for _, o := range []*Object{&r.Object, &r.OldObject, &r.Options} {
			_ = o.Get("a", "0", "b").String() + o.Get("c", "y").JSON() + o.Get("c").Get("x").JSON()
			_ = o.Get("c").Len()
			_ = o.Get("a").Get("0").Get("b").JSON()
			o.Get("a").elementAt(0)
		}
		for i := range 40 {
			r.Object.SetInt(1, "c", fmt.Sprint(i))
		}
		r.Checkpoint()
		r.Object.Set("[]", "a", "0")
		for range r.Object.Edits() {
			continue
		}
		r.Object.Set("nonsense")
		r.Response = Response{Allowed: true, Status: Status{Code: 1}, DeniedBy: "x", Patch: []byte("p")}
		r.Response.Warn("w")
		if err := r.Response.Annotate("k", "v"); err != nil {
			t.Fatal(err)
		}
		r.Checkpoint()
	}
	for range 2 {
		use()
		r.reset()
		notZero(t, "Review", reflect.ValueOf(&r).Elem())
	}
}

// notZero fails if a value is not zero. Slices may be empty, with zeros behind their
// end.
func notZero(t *testing.T, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			switch field.Name {
			case "views", "isReadOnly": // fields of the tag poison, and a field of a review
				continue
			}
			notZero(t, name+"."+field.Name, v.Field(i))
		}
	case reflect.Slice:
		if v.Len() != 0 {
			t.Errorf("%s has %d elements", name, v.Len())
		}
		if kind := v.Type().Elem().Kind(); kind == reflect.String || kind == reflect.Struct && v.Type().Elem() != reflect.TypeFor[node]() {
			for i, whole := 0, v.Slice(0, v.Cap()); i < whole.Len(); i++ {
				notZero(t, name+"[]", whole.Index(i))
			}
		}
	default:
		if !v.IsZero() {
			t.Errorf("%s is %v", name, v)
		}
	}
}

// TestIndex expects that each object with many members gets an index once there are
// more than nodesMax nodes, and that its members are counted.
func TestIndex(t *testing.T) {
	for n := indexedMin - 1; n <= indexedMin+1; n++ {
		members := func(from int) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, `,"m%d":%d`, from+i, i)
			}
			return b.String()[1:]
		}
		var o Object
		o.Reset([]byte(`{"list":[` + strings.Repeat("0,", nodesMax) + `0],"a":{` + members(0) + `},"b":{` + members(7) + `}}`))
		for range o.Get("list").Elements() {
			continue
		}
		o.Get("list", fmt.Sprint(nodesMax)) // one more than nodesMax
		counted := 0
		for _, name := range []string{"a", "b"} {
			o.SetInt(1, name, "m8")
			o.SetInt(2, name, "added")
			indexed := o.index[o.Get(name).currentNode()]
			if (indexed != nil) != (n >= indexedMin) || indexed != nil && len(indexed) != n+1 {
				t.Errorf("%d members of %s: %d are in the index", n, name, len(indexed))
			}
			if counted += len(indexed); o.indexed != counted {
				t.Errorf("%d members: got %d counted, want %d", n, o.indexed, counted)
			}
		}
		o.Set("{}", "a")
		if want := len(o.index[o.Get("b").currentNode()]); o.indexed != want {
			t.Errorf("%d members: got %d counted after one object is gone, want %d", n, o.indexed, want)
		}
		faulty := o.index
		o.Set("nonsense")
		if got := o.indexMembers(o.Get("b").currentNode()); got || len(o.index) != len(faulty) {
			t.Errorf("%d members: indexed after a fault", n)
		}
		if o.Fits(0) {
			t.Error("after a fault something fits")
		}
	}
}

// TestMemoryAfterwards tests that memory used before the limit is known counts, and
// that granted memory is not requested again.
func TestMemoryAfterwards(t *testing.T) {
	long := `"` + strings.Repeat("x", MemoryMax/5*3) + `"`
	for name, edit := range map[string]func(o *Object){
		"rewritten": func(o *Object) { o.Remove("list", "0") },
		"composed":  func(o *Object) { o.Compose(func(dst []byte) []byte { return append(append(dst, long...), long...) }) },
		"read":      func(o *Object) { _ = o.Get("list").JSON() },
	} {
		var o Object
		o.Reset([]byte(`{"list":[0,1,2]}`))
		o.Set(long, "list", "1")
		if o.Err() != nil {
			t.Fatal(o.Err())
		}
		if edit(&o); o.Err() == nil {
			t.Errorf("%s: got %d bytes of memory, no error", name, o.memory())
		}
	}
	var o Object
	o.Reset([]byte(`[` + strings.Repeat("0,", 4*nodesMax) + `0]`))
	g := &granter{Context: t.Context(), open: true}
	o.ctx = g
	if o.Get(Index(4*nodesMax)).JSON() != "0" || g.asked == 0 {
		t.Fatalf("asked %d times for the nodes of all elements", g.asked)
	}
	o.checkpoint()
	g.open = false
	if o.checkpoint(); o.Err() != nil {
		t.Errorf("a second checkpoint: %v", o.Err())
	}
	o.Reset([]byte(`[` + strings.Repeat("0,", 4*nodesMax) + `0]`))
	if o.ctx = g; o.Get(Index(4*nodesMax)).Exists() || !errors.Is(o.Err(), ErrNoMemory) {
		t.Errorf("nodes of all elements: got %v, want no memory", o.Err())
	}
}
