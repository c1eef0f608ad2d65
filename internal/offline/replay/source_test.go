package replay

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/recording"
)

func TestReadLine(t *testing.T) {
	var got []string
	from := source{send: func(r record) bool {
		got = append(got, r.fault.Error())
		return true
	}}
	long := `{"apiVersion":"audit.k8s.io/v1"` + strings.Repeat(" ", fileBytesMax) + "\n"
	if !from.stream("a", strings.NewReader(long+`{"apiVersion":"audit.k8s.io/v2"}`)) {
		t.Error("got no end")
	}
	if len(got) != 2 || !strings.Contains(got[0], "got a line of more than") || !strings.Contains(got[1], "audit.k8s.io/v2") {
		t.Errorf("got %q", got)
	}
	got = got[:0]
	from.stream("a", strings.NewReader(strings.TrimSuffix(long, "\n")))
	if len(got) != 1 || !strings.Contains(got[0], "got a line of more than") {
		t.Errorf("at the end: got %q", got)
	}
	got = got[:0]
	if !from.stream("b", bytes.NewReader(bytes.Repeat([]byte("# x\n"), fileBytesMax/4+1))) || len(got) != 1 ||
		!strings.Contains(got[0], "got more than 33554432 bytes") {
		t.Errorf("got %q", got)
	}
}

// FuzzStream reads any archive, audit log, review or manifest, which strangers write.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"a",` +
		`"stage":"ResponseComplete","verb":"patch","user":{"username":"u"},` +
		`"objectRef":{"resource":"pods","namespace":"n","name":"p","apiVersion":"v1"},` +
		`"responseStatus":{"code":403,"message":"admission webhook \"a\" denied the request: no"},` +
		`"requestObject":{"a":1},"responseObject":{"kind":"Pod","apiVersion":"v1"}}` + "\n"))
	f.Add([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE"}}`))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n--- \n[]\n"))
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"a" + recording.AnswerExtension, "a" + recording.ReviewExtension} {
		_ = w.WriteHeader(&tar.Header{Name: name, Size: 2, Typeflag: tar.TypeReg})
		_, _ = w.Write([]byte("{}"))
	}
	_ = w.Close()
	f.Add(archive.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		records := 0
		from := source{send: func(r record) bool {
			if r.body == nil && r.fault == nil && r.manifest == nil {
				t.Errorf("got a record without a review and an error: %+v", r)
			}
			records++
			return true
		}}
		from.stream("f", bytes.NewReader(content))
		if records > len(content)+1 {
			t.Errorf("got %d records of %d bytes", records, len(content))
		}
	})
}
