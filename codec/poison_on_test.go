//go:build poison

package codec_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// TestKeptStringsAreGarbage retains values beyond Release, until which they are
// valid.
func TestKeptStringsAreGarbage(t *testing.T) {
	f := func(name string, end func(r *codec.Review)) {
		t.Helper()
		r := codec.Acquire()
		body := []byte(v1Head + `{"uid":"the uid","namespace":"shop","operation":"CREATE","userInfo":{"username":"jane"},` +
			`"object":{"a":"\u0061\u0062\u0063","b":[1,2],"object":{"x":0,"long":true},"plain":"text"},"oldObject":{"old":"one"}}}`)
		sent := string(body)
		if err := r.Decode(body); err != nil {
			t.Fatal(err)
		}
		retained := views(r)
		clone := strings.Clone(r.Namespace())
		for want, got := range retained {
			if got != want {
				t.Errorf("%s: before: got %q, want %q", name, got, want)
			}
		}
		patch := r.Response.Patch
		elsewhere := make(chan map[string]string) // a goroutine that outlives the handler
		ended := make(chan struct{})
		go func() {
			<-ended
			elsewhere <- maps.Clone(retained)
		}()
		end(r)
		close(ended)
		retained = <-elsewhere
		retained["a patch"] = string(patch)
		for want, got := range retained {
			if got != strings.Repeat("\xdb", len(want)) {
				t.Errorf("%s: %q is still there: got %q", name, want, got)
			}
		}
		if clone != "shop" {
			t.Errorf("%s: the clone is %q", name, clone)
		}
		if string(body) != sent {
			t.Errorf("%s: the caller's body is now %q", name, body)
		}
	}
	f("Release", (*codec.Review).Release)
	f("Decode", func(r *codec.Review) { _ = r.Decode([]byte(v1Head + `{"uid":"1"}}`)) })
	f("a Decode that fails", func(r *codec.Review) { _ = r.Decode(nil) })
}

// views returns strings that are valid until r is released, by their source.
func views(r *codec.Review) map[string]string {
	o := &r.Object
	r.Response.Patch = append(r.Response.Patch, "a patch"...)
	retained := map[string]string{
		"the uid": r.UID(),
		"shop":    r.Namespace(),
		"CREATE":  string(r.Operation()),
		"jane":    r.Username(),
		"text":    o.Get("plain").String(),
		"one":     r.OldObject.Get("old").String(),
	}
	// Each of these comes from an arena that grows right after it.
	long := strings.Repeat("long ", 100)
	set := `"` + strings.Repeat(long, 8) + `"`
	for _, view := range []struct {
		want string
		get  func() string
	}{
		{`{"x":1,"long":true}`, func() string { o.Set("1", "object", "x"); return o.Get("object").JSON() }},
		{set, func() string { o.Set(set, "b", "0"); return o.Get("b", "0").JSON() }},
		{"abc", func() string { return o.Get("a").String() }},
		{"[4]", func() string { return o.Compose(func(dst []byte) []byte { return append(dst, "[4]"...) }) }},
		{`"kept too long"`, func() string { o.SetString("kept too long", "c"); return o.Get("c").JSON() }},
	} {
		retained[view.want] = view.get()
		long += long + long + long
		o.SetString(long+"\n", "d")
		_ = o.Get("d").String()
	}
	return retained
}

// TestKeptStringsOfObjectsAreGarbage tests an Object without a Review.
func TestKeptStringsOfObjectsAreGarbage(t *testing.T) {
	var o codec.Object
	o.Reset([]byte(` {"a":"text"} `))
	retained := o.Get("a").String()
	if retained != "text" {
		t.Fatalf("got %q", retained)
	}
	o.Reset([]byte(`{"a":"more"}`))
	if next := o.Get("a").String(); retained != "\xdb\xdb\xdb\xdb" || next != "more" {
		t.Errorf("got %q, then %q, want garbage and the new text", retained, next)
	}
}
