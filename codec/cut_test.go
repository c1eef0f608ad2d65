package codec_test

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// TestCut cuts every recording at every byte: each of them is an error.
func TestCut(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 17
	}
	for _, name := range corpus.Names() {
		body := bytes.TrimSpace(corpus.MustRead(name))
		for n := 0; n < len(body); n += step {
			r := codec.Acquire()
			// Cap the slice too: nothing behind its end may be read.
			if err := r.Decode(body[:n:n]); err == nil {
				t.Errorf("%s cut at %d: no error", name, n)
			}
			r.Release()
		}
	}
}

// TestAltered changes bytes of every recording. Reading all of the result must
// not panic.
func TestAltered(t *testing.T) {
	rng := seed.Rand(t)
	times := 40
	if testing.Short() {
		times = 4
	}
	const bytesToPut = "\"\\{}[]:,0x \x00\xff"
	for _, name := range corpus.Names() {
		body := corpus.MustRead(name)
		for range times {
			altered := bytes.Clone(body)
			for range 1 + rng.IntN(3) {
				altered[rng.IntN(len(altered))] = bytesToPut[rng.IntN(len(bytesToPut))]
			}
			r := codec.Acquire()
			if err := r.Decode(altered); err == nil {
				readAll(r)
			}
			r.Release()
		}
	}
}

// readAll reads every field of the request and every value in its objects.
func readAll(r *codec.Review) {
	requestOf(r)
	for _, o := range []*codec.Object{&r.Object, &r.OldObject, &r.Options} {
		readBelow(o.Root())
		o.Set("1", "metadata", "name")
		o.Remove("spec")
		o.Append(`{"a":1}`, "metadata", "finalizers")
		o.SetBool(true, "status", "a", "b")
		o.Root().JSON()
		for edit := range o.Edits() {
			edit.Before.JSON()
		}
	}
}

func readBelow(v codec.Value) {
	_, _ = v.Int64()
	_ = v.Scalar()
	for name, member := range v.Members() {
		v.Get(name)
		readBelow(member)
	}
	for _, element := range v.Elements() {
		readBelow(element)
	}
}
