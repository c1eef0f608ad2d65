package bench

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fastadmit/fastadmit/corpus"
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// document is a review as a tree, without the parts that change for each request.
type document map[string]any

func decode(t *testing.T, body []byte) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// take removes a string from the tree and returns it.
func (d document) take(path ...string) string {
	m := map[string]any(d)
	for _, key := range path[:len(path)-1] {
		m, _ = m[key].(map[string]any)
	}
	value, _ := m[path[len(path)-1]].(string)
	delete(m, path[len(path)-1])
	return value
}

// Only the uid and the names of a recording change.
func TestRecordingsAreSentAsRecorded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range corpus.Names() {
		original := corpus.MustRead(name)
		r, err := NewRecording(name, original)
		if err != nil {
			t.Fatal(err)
		}
		sent := bytes.Clone(r.body)
		first := string(r.freshen(sent, random))
		uid := string(r.freshen(sent, random))
		if !uuid.MatchString(uid) || uid == first {
			t.Errorf("%s: got uid %q after %q", name, uid, first)
		}
		want, got := decode(t, original), decode(t, sent)
		want.take("request", "uid")
		if in := got.take("request", "uid"); in != uid {
			t.Errorf("%s: got uid %q in the body, want %q", name, in, uid)
		}
		names := make(map[string]string) // by the names in the recording
		for _, path := range [][]string{
			{"request", "name"}, {"request", "object", "metadata", "name"}, {"request", "oldObject", "metadata", "name"},
		} {
			before, after := want.take(path...), got.take(path...)
			checkFresh(t, name, before, after, names)
		}
		if strings.HasPrefix(r.Kind, "namespaces") {
			checkFresh(t, name, want.take("request", "namespace"), got.take("request", "namespace"), names)
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: more than uid and names has changed", name)
		}
	}
}

func checkFresh(t *testing.T, recording, before, after string, names map[string]string) {
	t.Helper()
	if before == "" {
		if after != "" {
			t.Errorf("%s: got name %q where there was none", recording, after)
		}
		return
	}
	if known, ok := names[before]; ok && known != after {
		t.Errorf("%s: got name %q and %q for %q", recording, known, after, before)
	}
	names[before] = after
	if after == before || !strings.HasPrefix(after, before[:min(len(before), nameBytesMax-freshBytes)]) || len(after) > nameBytesMax {
		t.Errorf("%s: got name %q for %q", recording, after, before)
	}
}

func TestRecordingErrors(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		_, err := NewRecording("x", []byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
	f(``, "not JSON")
	f(`{"kind":`, "not JSON")
	f(`{"kind":"Pod","apiVersion":"v1"}`, `got kind "Pod" of "v1"`)
	f(`[]`, "got kind")
	f(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, "want all three")
	f(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE"}}`, `resource ""`)
}

// Names that are written with escapes do not change.
func TestRecordingWithEscapes(t *testing.T) {
	r, err := NewRecording("x", []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",`+
		`"operation":"CREATE","resource":{"resource":"pods"},"name":"a\u0062c","object":{"metadata":{"name":"plain"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Clone(r.body)
	r.freshen(body, rand.New(rand.NewPCG(1, 2)))
	d := decode(t, body)
	if name, fresh := d.take("request", "name"), d.take("request", "object", "metadata", "name"); name != "abc" || len(fresh) != len("plain")+freshBytes {
		t.Errorf("got %q and %q", name, fresh)
	}
}

func TestMixWeights(t *testing.T) {
	recordings, err := Bundled("v1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMix(recordings, map[string]float64{"pods:create": 6, "pods": 3, "configmaps": 1, "nodes": 0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(map[string]float64)
	for n := range int64(len(m.sequence)) {
		kind := m.at(n).Kind
		if kind != "pods:create" {
			kind, _, _ = strings.Cut(kind, ":")
		}
		sent[kind] += 1 / float64(len(m.sequence))
	}
	for kind, want := range map[string]float64{"pods:create": 0.6, "pods": 0.3, "configmaps": 0.1} {
		if got := sent[kind]; got < want-0.01 || got > want+0.01 {
			t.Errorf("got %.3f of %s, want %.1f", got, kind, want)
		}
	}
	if len(sent) != 3 {
		t.Errorf("got %v, want three kinds", sent)
	}
	again, err := NewMix(recordings, map[string]float64{"pods:create": 6, "pods": 3, "configmaps": 1, "nodes": 0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(100) {
		if m.at(n).Name != again.at(n).Name {
			t.Fatal("the same seed gave another order")
		}
	}
}

func TestMixErrors(t *testing.T) {
	recordings, err := Bundled("v1")
	if err != nil {
		t.Fatal(err)
	}
	f := func(recordings []*Recording, weights map[string]float64, want string) {
		t.Helper()
		_, err := NewMix(recordings, weights, 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", weights, err, want)
		}
	}
	f(nil, nil, "want at least one")
	f(recordings, map[string]float64{"pods": 0}, "want at least one")
	f(recordings, map[string]float64{"pods": -1}, "want 0 or more")
	f(recordings, map[string]float64{"pod": 1}, `of which there is no recording; there are apiservices:create, `)
	if _, err := Bundled("v2"); err == nil || !strings.Contains(err.Error(), "want v1 or v1beta1") {
		t.Errorf("got %v", err)
	}
}

func TestReadDir(t *testing.T) {
	body := corpus.MustRead("pods-create-v1-1.json")
	recordings, err := ReadDir(fstest.MapFS{
		"a.json": {Data: body}, "b.denied.json": {Data: body}, "c.allowed.json": {Data: body}, "notes.txt": {Data: []byte("x")},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]Expect)
	for _, r := range recordings {
		got[r.Name] = r.Expect
	}
	if want := map[string]Expect{"a": "", "b.denied": Denied, "c.allowed": Allowed}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := ReadDir(fstest.MapFS{"a.json": {Data: []byte("{}")}}); err == nil || !strings.Contains(err.Error(), "cannot send a: got kind") {
		t.Errorf("got %v", err)
	}
	if _, err := ReadDir(fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "found no file") {
		t.Errorf("got %v", err)
	}
}

func TestSynthetic(t *testing.T) {
	for _, operation := range []string{"create", "UPDATE"} {
		for _, size := range []int{2 << 10, 2<<10 + 1, 2<<10 + 61, 4095, 10 << 10, 200 << 10} {
			r, err := Synthetic(operation, size)
			if err != nil {
				t.Fatal(err)
			}
			// The names become longer by their suffixes.
			if got := r.Bytes() - len(r.names)*freshBytes; got != size || !json.Valid(r.body) {
				t.Errorf("%s of %d bytes: got %d, valid: %t", operation, size, got, json.Valid(r.body))
			}
			if want := "pods:" + strings.ToLower(operation) + " of "; !strings.HasPrefix(r.Kind, want) {
				t.Errorf("got kind %q, want %q and the size", r.Kind, want)
			}
		}
	}
	if r, err := Synthetic("CREATE", 3<<20); err != nil || r.Bytes() != 3<<20+2*freshBytes {
		t.Errorf("got %v", err)
	}
	if r, err := Synthetic("CREATE", SyntheticBytesMin); err != nil || r.Kind != "pods:create of 1 KiB" {
		t.Errorf("got %v", err)
	}
	f := func(operation string, size int) {
		t.Helper()
		if _, err := Synthetic(operation, size); err == nil {
			t.Errorf("%s of %d bytes is no error", operation, size)
		}
	}
	f("DELETE", 10000)
	f("CREATE", SyntheticBytesMin-1)
	f("UPDATE", SyntheticBytesMax+1)
}

// The legend has a line for each bundled recording, with its length.
func TestLegend(t *testing.T) {
	legend, err := os.ReadFile("../corpus/legend.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]string)
	for line := range strings.Lines(string(legend)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			lines[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		}
	}
	for _, name := range corpus.Names() {
		stem := strings.TrimSuffix(name, ".json")
		if got, want := lines[stem], strconv.Itoa(len(corpus.MustRead(name))); got != want {
			t.Errorf("the legend says that %s has %q bytes, want %s", stem, got, want)
		}
	}
}
