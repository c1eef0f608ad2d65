package controllerruntime_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fastadmit/fastadmit/adapters/controllerruntime/internal/compare"
	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// pullAlways does what AlwaysPullImages does.
type pullAlways struct{}

func (pullAlways) Default(_ context.Context, pod *corev1.Pod) error {
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].ImagePullPolicy = corev1.PullAlways
		}
	}
	return nil
}

// accepts decodes the Pod and accepts it.
type accepts struct{}

func (accepts) ValidateCreate(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}
func (accepts) ValidateUpdate(_ context.Context, _, _ *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}
func (accepts) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

// BenchmarkWebhook measures webhooks with the recorded Pod: through the handler of
// controller-runtime's server, and as a plugin. Neither includes HTTP and TLS. "none" is a review
// that the plugin's rules do not select. cpu-ns/op is processor time, including the garbage
// collector's. Other load on the machine changes it less than ns/op.
func BenchmarkWebhook(b *testing.B) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	body := corpus.MustRead("pods-create-v1-1.json")
	server := func(b *testing.B, w *admission.Webhook) {
		b.ReportAllocs()
		defer reportCPU(b, cpuTime(b))
		for b.Loop() {
			request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", bytes.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
			w.ServeHTTP(httptest.NewRecorder(), request)
		}
	}
	plugin := func(b *testing.B, chain *fastadmit.Chain, phase fastadmit.Phase) {
		b.ReportAllocs()
		defer reportCPU(b, cpuTime(b))
		var response []byte
		for b.Loop() {
			review := codec.Acquire()
			if err := review.Decode(body); err != nil {
				b.Fatal(err)
			}
			if _, err := chain.Review(context.Background(), review, phase); err != nil {
				b.Fatal(err)
			}
			response = review.AppendResponse(response[:0])
			review.Release()
		}
	}
	typed := admissiontest.MustChain(b, fastadmit.Plugin{
		Name: "Typed", Rules: []fastadmit.Rule{fastadmit.Any()}, Mutates: true,
		New: func(fastadmit.Setup) (fastadmit.Handler, error) {
			return fastadmit.Handler{Admit: fastadmit.AdmitTyped(func(ctx context.Context, _ *codec.Review, pod,
				_ *corev1.Pod) fastadmit.Result {
				_ = pullAlways{}.Default(ctx, pod)
				return fastadmit.Allowed()
			})}, nil
		},
	}, "")
	defaulter, validator := admission.WithDefaulter(scheme, pullAlways{}), admission.WithValidator(scheme, accepts{})
	b.Run("mutate/server", func(b *testing.B) { server(b, defaulter) })
	b.Run("mutate/plugin", func(b *testing.B) { plugin(b, compare.Chain(b, defaulter, fastadmit.Mutate), fastadmit.Mutate) })
	b.Run("mutate/typed", func(b *testing.B) { plugin(b, typed, fastadmit.Mutate) })
	b.Run("validate/server", func(b *testing.B) { server(b, validator) })
	b.Run("validate/plugin", func(b *testing.B) { plugin(b, compare.Chain(b, validator, fastadmit.Validate), fastadmit.Validate) })
	b.Run("none/plugin", func(b *testing.B) { plugin(b, compare.Chain(b, validator, fastadmit.Validate), fastadmit.Mutate) })
}

func reportCPU(b *testing.B, start int64) {
	b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/op")
}

// cpuTime returns the processor time of this process so far, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
