//go:build !poison

package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// TestGuardPage places texts so that they end right before inaccessible memory,
// and decodes, reads and sets them. A read behind the end faults, also in
// native code. Strings are unescaped into a buffer that ends there as well, to
// detect writes. With the tag poison these tests do not run, because it copies
// texts elsewhere. A fault in Go code fails the test and names the case. One in
// native code may end the process; then the file that is named on standard
// error has the number of the case, eight bytes, little-endian.
func TestGuardPage(t *testing.T) {
	start := seed.Of(t)
	cases := uint64(seed.Cases(t, 200_000, 1_000_000))
	if testing.Short() {
		cases = 50_000
	}
	g := newGuarded(t)
	first := uint64(0)
	if *caseFlag >= 0 {
		first, cases = uint64(*caseFlag), uint64(*caseFlag)+1
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for n := first; n < cases; n++ {
		binary.LittleEndian.PutUint64(g.record, n)
		if fault := g.try(rand.New(rand.NewPCG(start, n))); fault != nil {
			t.Fatalf("seed %d, -case %d: %v", start, n, fault)
		}
	}
}

var caseFlag = flag.Int64("case", -1, "the only case of TestGuardPage to try")

// guarded is the memory and the state of TestGuardPage.
type guarded struct {
	in, out []byte // each ends right before inaccessible memory
	record  []byte // the number of the current case, in a file
	sources []source
	object  Object
	review  Review
}

// A source is a text, and the offset of a bracket or quote in it that opens a
// value.
type source struct {
	text    []byte
	opens   []int
	isWhole bool // an AdmissionReview
}

const guardedBytes = 64 << 10 // more than the size of the largest recording

func newGuarded(t *testing.T) *guarded {
	g := &guarded{in: guardedMemory(t)[:guardedBytes], out: guardedMemory(t)[:guardedBytes:guardedBytes]}
	path := filepath.Join(t.TempDir(), "case")
	file, err := os.Create(path)
	if err == nil {
		err = file.Truncate(8)
	}
	if err == nil {
		g.record, err = syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = syscall.Munmap(g.record), file.Close() })
	if testing.Verbose() {
		fmt.Fprintln(os.Stderr, "if this process dies, the number of the case is in", path)
	}
	escaped := []byte(`{"\u0061\n":["\ud83d\ude00\\","a\"\u00e9\u00e9\u00e9\u00e9b","` + `\u4e16\t0123456789abcdef0123456789abcdef\/"]}`)
	g.sources = append(g.sources, source{text: escaped})
	for _, name := range corpus.Names() {
		body := corpus.MustRead(name)
		var review struct {
			Request struct{ Object, OldObject json.RawMessage }
		}
		if err := json.Unmarshal(body, &review); err != nil {
			t.Fatal(err)
		}
		g.sources = append(g.sources, source{text: bytes.TrimSpace(body), isWhole: true},
			source{text: review.Request.Object}, source{text: review.Request.OldObject})
	}
	g.sources = slices.DeleteFunc(g.sources, func(s source) bool { return len(s.text) < 8 })
	for i := range g.sources {
		for at, c := range g.sources[i].text {
			if c == '{' || c == '[' || c == '"' {
				g.sources[i].opens = append(g.sources[i].opens, at)
			}
		}
	}
	return g
}

// guardedMemory returns memory that is inaccessible from guardedBytes on.
func guardedMemory(t *testing.T) []byte {
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, guardedBytes+page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(memory) })
	if err := syscall.Mprotect(memory[guardedBytes:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return memory
}

// place returns a copy of text, with some bytes altered, at the very end.
func (g *guarded) place(rng *rand.Rand, text []byte) []byte {
	const bytesToPut = "\"\\{}[]:,u0 \x00\xff"
	placed := g.in[len(g.in)-len(text):]
	copy(placed, text)
	for range rng.IntN(4) {
		placed[rng.IntN(len(placed))] = bytesToPut[rng.IntN(len(bytesToPut))]
	}
	return placed
}

// try runs one case. The values that are read do not matter, only that no read
// faults.
func (g *guarded) try(rng *rand.Rand) (fault any) {
	defer func() {
		if fault = recover(); fault != nil {
			fault = fmt.Sprintf("%v\n%s", fault, debug.Stack())
		}
	}()
	s := &g.sources[rng.IntN(len(g.sources))]
	if s.isWhole {
		end := len(s.text)
		if rng.IntN(4) == 0 {
			end = 1 + rng.IntN(end)
		}
		g.decode(g.place(rng, s.text[:end]))
		return nil
	}
	text := s.text[s.opens[rng.IntN(len(s.opens))]:]
	switch rng.IntN(4) {
	case 0:
		text = text[:1+rng.IntN(len(text))]
	case 1, 2:
		text = text[:1+rng.IntN(min(len(text), 100))] // about as many bytes as native code reads at a time
	}
	placed := g.place(rng, text)
	switch rng.IntN(3) {
	case 0:
		g.object.Reset(placed)
		readSome(&g.object)
	case 1:
		g.object.Reset([]byte(`{"a":{"b":[1]}}`))
		g.object.Set(stringOf(placed), "a", "c")
		g.object.Append(stringOf(placed), "a", "b")
		g.object.Get("a").JSON()
	default:
		g.object.Reset(nil)
		kept := g.object.plain
		g.object.plain = g.out[len(g.out)-len(placed) : len(g.out)-len(placed)]
		g.object.unescape(stringOf(placed))
		g.object.unescape(stringOf(placed[1:]))
		g.object.plain = kept
	}
	return nil
}

func (g *guarded) decode(body []byte) {
	r := &g.review
	if r.Decode(body) != nil {
		return
	}
	_ = r.UID() + r.Name() + r.Namespace() + r.Kind().Kind + r.Resource().Resource + r.Username()
	for _, group := range r.UserInfo().Get("groups").Elements() {
		_ = group.String()
	}
	readSome(&r.Object)
	readSome(&r.Options)
}

// readSome reads as plugins do.
func readSome(o *Object) {
	_ = o.Get("metadata", "name").String()
	for name, label := range o.Get("metadata", "labels").Members() {
		label.EqualString(name)
	}
	for i, container := range o.Get("spec", "containers").Elements() {
		_ = container.Get("image").String()
		o.Set(`"Always"`, "spec", "containers", Index(i), "imagePullPolicy")
	}
	root := o.Root()
	_ = root.Scalar() + root.JSON()
	for name, member := range root.Members() {
		_ = name + member.Scalar()
	}
	for _, element := range root.Elements() {
		_ = element.Scalar() + element.Get("name").Scalar() + element.Get("no such member").Scalar()
		_ = element.Get("resources", "limits", "cpu").JSON() + element.Get("env", "0", "value").JSON()
	}
}

// TestGuardPageFaults checks that access to the guard page faults.
func TestGuardPageFaults(t *testing.T) {
	memory := guardedMemory(t)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("reading behind the end is no fault")
		}
	}()
	t.Log(memory[guardedBytes-1], memory[guardedBytes])
}

// TestGuardPageBase64 encodes texts that end right before unreadable memory
// into buffers that end right before unwritable memory.
func TestGuardPageBase64(t *testing.T) {
	in, out := guardedMemory(t), guardedMemory(t)
	rng := seed.Rand(t)
	for i := range guardedBytes {
		in[i] = byte(rng.Uint32())
	}
	for n := range 3000 {
		src := in[guardedBytes-n : guardedBytes]
		want := base64.StdEncoding.EncodeToString(src)
		dst := out[guardedBytes-len(want) : guardedBytes-len(want) : guardedBytes]
		if got := AppendBase64(dst, src); string(got) != want {
			t.Fatalf("%x: got %s, want %s", src, got, want)
		}
		if got := AppendBase64([]byte("x"), src); string(got) != "x"+want {
			t.Fatalf("%x: got %s behind an x", src, got)
		}
	}
}
