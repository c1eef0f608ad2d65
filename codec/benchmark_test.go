package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/bytedance/sonic"
	"github.com/valyala/fastjson"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const benchmarked = "pods-create-v1-1.json"

// BenchmarkDecode decodes a 7.5 KB review of a Pod as far as a decision needs
// it.
func BenchmarkDecode(b *testing.B) {
	body := corpus.MustRead(benchmarked)
	f := func(name string, decode func() error) {
		b.Run(name, func(b *testing.B) { benchmarkDecode(b, body, decode) })
	}
	f("fastadmit", func() error { return decodeReview(body) })
	types := func(decode decodeFunc) func() error {
		return func() error {
			var review admissionv1.AdmissionReview
			if err := decode(body, &review); err != nil {
				return err
			}
			return decode(review.Request.Object.Raw, new(corev1.Pod))
		}
	}
	f("encodingjson", types(json.Unmarshal))
	f("sonic", types(sonic.Unmarshal))
	var parser fastjson.Parser
	f("fastjson", func() error {
		_, err := parser.ParseBytes(body)
		return err
	})
	f("sonicast", func() error {
		node, err := sonic.Get(body)
		if err != nil {
			return err
		}
		return node.LoadAll()
	})
}

// BenchmarkDecodeSmaller is BenchmarkDecode/fastadmit for a review of 6.5 KB:
// the same Pod without init containers and volumes.
func BenchmarkDecodeSmaller(b *testing.B) {
	body := corpus.MustRead(benchmarked)
	var review struct {
		Request struct{ Object json.RawMessage }
	}
	var pod map[string]any
	if err := errors.Join(json.Unmarshal(body, &review), json.Unmarshal(review.Request.Object, &pod)); err != nil {
		b.Fatal(err)
	}
	delete(pod["spec"].(map[string]any), "initContainers")
	delete(pod["spec"].(map[string]any), "volumes")
	smaller, err := json.Marshal(pod)
	if err != nil {
		b.Fatal(err)
	}
	body = bytes.Replace(body, review.Request.Object, smaller, 1)
	benchmarkDecode(b, body, func() error { return decodeReview(body) })
}

func decodeReview(body []byte) error {
	r := codec.Acquire()
	defer r.Release()
	return r.Decode(body)
}

func benchmarkDecode(b *testing.B, body []byte, decode func() error) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := decode(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkReview runs f on the review of a Pod, over and over.
func benchmarkReview(b *testing.B, f func(r *codec.Review)) {
	body := corpus.MustRead(benchmarked)
	b.ReportAllocs()
	for b.Loop() {
		r := codec.Acquire()
		if err := r.Decode(body); err != nil {
			b.Fatal(err)
		}
		f(r)
		if err := r.Err(); err != nil {
			b.Fatal(err)
		}
		r.Release()
	}
}

// The benchmarks below include decoding.

func BenchmarkGet(b *testing.B) {
	f := func(name string, path ...string) {
		b.Run(name, func(b *testing.B) {
			benchmarkReview(b, func(r *codec.Review) {
				if !r.Object.Get(path...).Exists() {
					b.Fatal("nothing there")
				}
			})
		})
	}
	f("first", "kind")
	f("label", "metadata", "labels", "app")
	f("spec", "spec")
	f("container", "spec", "containers", "0", "image")
}

func BenchmarkGetAgain(b *testing.B) {
	benchmarkReview(b, func(r *codec.Review) {
		for range 10 {
			if !r.Object.Get("spec", "containers", "0", "image").Exists() {
				b.Fatal("nothing there")
			}
		}
	})
}

func BenchmarkContainers(b *testing.B) {
	benchmarkReview(b, func(r *codec.Review) {
		for _, container := range r.Object.Get("spec", "containers").Elements() {
			if container.Get("image").String() == "" {
				b.Fatal("no image")
			}
		}
	})
}

func BenchmarkEnvelope(b *testing.B) {
	benchmarkReview(b, func(r *codec.Review) {
		if r.UID() == "" || r.Kind().Kind != "Pod" || r.Resource().Resource != "pods" || r.Operation() != codec.Create {
			b.Fatal("not what it is")
		}
	})
}

func BenchmarkSet(b *testing.B) {
	benchmarkReview(b, func(r *codec.Review) {
		r.Object.Set(`"Always"`, "spec", "containers", "0", "imagePullPolicy")
	})
}

func BenchmarkAppend(b *testing.B) {
	const toleration = `{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}`
	benchmarkReview(b, func(r *codec.Review) {
		r.Object.Append(toleration, "spec", "tolerations")
	})
}

func BenchmarkAppendResponse(b *testing.B) {
	var response []byte
	benchmarkReview(b, func(r *codec.Review) {
		r.Response.Allowed = true
		response = r.AppendResponse(response[:0])
	})
}
