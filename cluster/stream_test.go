package cluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/internal/allocs"
)

// TestEventLength reads events of the maximum length, and longer ones.
func TestEventLength(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads long events")
	}
	f := func(length int, want error) {
		t.Helper()
		const begin, end = `{"type":"ADDED","object":{"x":"`, `"}}`
		text := begin + strings.Repeat("x", length-len(begin)-len(end)) + end
		event, err := newEventReader(strings.NewReader(text)).next()
		if !errors.Is(err, want) || err == nil && event.Type != "ADDED" {
			t.Errorf("JSON of %d bytes: got %q, %v, want %v", length, event.Type, err, want)
		}
		event.Type, event.Object.Raw = "ADDED", nil
		wire, err := event.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		padding := length - len(wire) - 5 // the tag and the length of a field
		wire = append(binary.AppendUvarint(append(wire, 15<<3|2), uint64(padding)), make([]byte, padding)...)
		message := append(binary.BigEndian.AppendUint32(nil, uint32(len(wire))), wire...)
		event, err = newEventReader(bytes.NewReader(message)).next()
		if len(wire) != length || !errors.Is(err, want) || err == nil && event.Type != "ADDED" {
			t.Errorf("protobuf of %d bytes, want %d: got %q, %v, want %v", len(wire), length, event.Type, err, want)
		}
	}
	f(eventBytesMax-1, nil)
	f(eventBytesMax, nil)
	f(eventBytesMax+1, errTooLong)
	endless := io.MultiReader(strings.NewReader(`{"type":"`), endlessReader{})
	if most, got := uint64(8*eventBytesMax), allocs.Bytes(func() {
		if _, err := newEventReader(endless).next(); !errors.Is(err, errTooLong) {
			t.Errorf("got %v of an event without an end, want %v", err, errTooLong)
		}
	}); got > most {
		t.Errorf("got %d bytes for an event without an end, want at most %d", got, most)
	}
}

// An endlessReader reads "xxx...".
type endlessReader struct{}

func (endlessReader) Read(into []byte) (int, error) {
	for i := range into {
		into[i] = 'x'
	}
	return len(into), nil
}

// TestEvents reads events one after the other, with brackets in strings and an incomplete event at the end.
func TestEvents(t *testing.T) {
	const text = `{"type":"ADDED","object":{"a":"}\\\"{"}}` + "\n" + ` {"type":"BOOKMARK","object":{}}{"type":"x`
	events := newEventReader(strings.NewReader(text))
	for _, want := range []string{`ADDED {"a":"}\\\"{"}`, "BOOKMARK {}"} {
		if event, err := events.next(); err != nil || event.Type+" "+string(event.Object.Raw) != want {
			t.Errorf("got %s %s, %v, want %s", event.Type, event.Object.Raw, err, want)
		}
	}
	if _, err := events.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v of half an event", err)
	}
	if _, err := newEventReader(strings.NewReader("\n")).next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end", err)
	}
}

// TestLists reads lists as JSON and as protobuf, whole and cut at each byte.
func TestLists(t *testing.T) {
	list := &corev1.ServiceAccountList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccountList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "c"},
		Items: []corev1.ServiceAccount{
			{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n"}, Secrets: []corev1.ObjectReference{{Name: "s", Kind: "dropped"}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "n"}},
		},
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	message, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ServiceAccountList"}, Raw: message}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, whole := range [][]byte{text, append(bytes.Clone(messagePrefix), wrapped...)} {
		s := newStore(ServiceAccounts.Kind, slog.New(slog.DiscardHandler))
		got, err := s.readList(bytes.NewReader(whole))
		if err != nil || got.ResourceVersion != "7" || got.Continue != "c" || len(got.Items) != 2 || got.Items[1].Name != "b" {
			t.Fatalf("got %+v, %v of %q", got, err, whole)
		}
		e, _ := s.incoming.take("n", "a")
		if a, ok := e.object.(*corev1.ServiceAccount); !ok || len(a.Secrets) != 1 || a.Secrets[0] != (corev1.ObjectReference{Name: "s"}) {
			t.Errorf("got %+v, want it with the name of its secret only", e.object)
		}
		const rest = 5 // of an Unknown, behind the list
		for end := len(whole) - rest; end > 0; end-- {
			if got, err := s.readList(bytes.NewReader(whole[:end])); err == nil {
				t.Fatalf("got %d items and no error of %d of %d bytes", len(got.Items), end, len(whole))
			}
		}
	}
	none := newStore(ServiceAccounts.Kind, slog.New(slog.DiscardHandler))
	if got, err := none.readList(strings.NewReader(`{"items":null,"kind":"ServiceAccountList","other":{"items":[{}]}}`)); err != nil ||
		len(got.Items) != 0 {
		t.Errorf("got %+v, %v, want no items", got, err)
	}
	for _, text := range []string{``, `[`, `[]   `, `{"items":1}`, `{"items":[1]}`, `{"kind":"PodList","items":[]}`,
		`{"items":[{"metadata":{"name":1}}]}`} {
		if got, err := none.readList(strings.NewReader(text)); err == nil {
			t.Errorf("got %+v of %q, want an error", got, text)
		}
	}
}

// TestDecodeLarge decodes ServiceAccounts with many secrets: one that is too large takes
// little memory, even for a moment.
func TestDecodeLarge(t *testing.T) {
	s := newStore(ServiceAccounts.Kind, slog.New(slog.DiscardHandler))
	f := func(name string, secrets int, kept bool) {
		t.Helper()
		account := corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: "u", ResourceVersion: "7",
				Labels: map[string]string{"dropped": strings.Repeat("x", 1<<20)}},
			Secrets: make([]corev1.ObjectReference, secrets),
		}
		message, err := account.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var a *arrived
		const most = 32 << 20 // including copies while slices grow
		if got := allocs.Bytes(func() { a, err = s.decode(message, true) }); got > most {
			t.Errorf("%d secrets took %d bytes, want at most %d", secrets, got, most)
		}
		if err != nil || a.Name != name || a.Namespace != "n" || a.ResourceVersion != "7" {
			t.Fatalf("%d secrets: got %+v, %v", secrets, a, err)
		}
		if err := s.Add(a); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.lookup("n", name); ok != kept {
			t.Errorf("%d secrets: kept %v, want %v; they have %d bytes", secrets, ok, kept, a.bytes)
		}
	}
	f("few", 10, true)
	f("many", 14_000, true)     // of 112 bytes each
	f("toomany", 19_000, false) // above objectBytesMax
	f("longest", 32_700, false) // decoded for a moment
	f("toolong", 32_800, false) // above wireBytesMax
	f("attack", 100_000, false) // as many as fit into an object in etcd
	if left := s.leftOut(); left != 4 {
		t.Errorf("got %d left out, want 4", left)
	}
}

// TestPace has the API server answer 410 to every watch, in all ways, and counts requests.
func TestPace(t *testing.T) {
	const gone = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"gone","reason":"%s","code":410}`
	f := func(name string, answer func(w http.ResponseWriter)) {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !isWatch(r) {
					return false
				}
				w.Header().Set("Content-Type", runtime.ContentTypeJSON)
				answer(w)
				return true
			})
			s := a.newState(Options{})
			for _, kind := range testKinds {
				s.find(kind).timing = defaultTiming
			}
			if err := s.Follow(t.Context(), followed()...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			// Each kind sends three at once, then one after 0.5 and one after 1 s.
			if got, most := a.count(func(*http.Request) bool { return true }), 6*len(testKinds); got > most || got == 0 {
				t.Errorf("got %d requests in two seconds, want at most %d", got, most)
			}
		})
	}
	for _, reason := range []string{"Expired", "Gone"} {
		f(reason, func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusGone)
			fmt.Fprintf(w, gone, reason)
		})
		f(reason+" event", func(w http.ResponseWriter) { fmt.Fprintf(w, `{"type":"ERROR","object":`+gone+`}`, reason) })
	}
	f("invalid event", func(w http.ResponseWriter) { io.WriteString(w, `{"type":"ADDED","object":[]}`) })
	f("no event", func(http.ResponseWriter) {})
}
