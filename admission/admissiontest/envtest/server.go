package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
	"github.com/fastadmit/fastadmit/codec"
)

// startMax is how long each process may take to be ready on a busy machine.
const startMax = 60 * time.Second

// A server is fastadmit in this process.
type server struct {
	cluster *Cluster
	dir     string // for files
	plugins []admission.Plugin
	flags   []string // for all commands
	ca      string   // file with the certificate of the server
}

// names returns the names of all plugins to enable.
func (s *server) names(enabled []string) string {
	for _, p := range s.plugins {
		enabled = append(enabled, p.Name)
	}
	return strings.Join(enabled, ",")
}

// run runs a command of fastadmit to its end.
func (s *server) run(ctx context.Context, stdout, stderr *buffer, arguments ...string) error {
	var options []app.Option
	for _, p := range s.plugins {
		options = append(options, app.WithPlugin(p))
	}
	command := app.NewCommand(options...)
	command.SetArgs(append(arguments, s.flags...))
	command.SetOut(stdout)
	command.SetErr(stderr)
	return command.ExecuteContext(ctx)
}

var ready = regexp.MustCompile(`serving on (https://[^\s,]+)`)

// serve serves until the test ends and returns the URL.
func (s *server) serve(t testing.TB) (url string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.ca = s.write(t, "tls.crt", certificate)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var stdout, stderr buffer
	go func() {
		ended <- s.run(ctx, &stdout, &stderr, "serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=",
			"--tls-cert-file="+s.ca, "--tls-private-key-file="+s.write(t, "tls.key", key))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("fastadmit: %v", err)
		}
		if t.Failed() {
			t.Logf("log of fastadmit:\n%s", stderr.String())
		}
	})
	await(t, "fastadmit", func() error {
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("fastadmit ended: %v\n%s", err, stderr.String())
		default:
		}
		m := ready.FindStringSubmatch(stdout.String())
		if m == nil {
			return errors.New("it does not serve yet")
		}
		url = m[1]
		return nil
	})
	return url
}

// register creates the webhook configurations and waits until kube-apiserver uses
// them.
func (s *server) register(t testing.TB, url string) {
	t.Helper()
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	for kind, configuration := range map[string]any{
		"MutatingWebhookConfiguration": &mutating, "ValidatingWebhookConfiguration": &validating,
	} {
		var stdout, stderr buffer
		err := s.run(t.Context(), &stdout, &stderr, "manifests", "--kind="+kind, "--url="+url, "--ca-bundle-file="+s.ca)
		if err == nil {
			err = yaml.Unmarshal([]byte(stdout.String()), configuration)
		}
		if err != nil {
			t.Fatalf("cannot make the webhook configurations: %v\n%s", err, stderr.String())
		}
	}
	client := s.cluster.Client.AdmissionregistrationV1()
	if _, err := client.MutatingWebhookConfigurations().Create(t.Context(), &mutating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ValidatingWebhookConfigurations().Create(t.Context(), &validating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		await(t, "kube-apiserver to call fastadmit", func() error {
			probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: markerName(phase), Namespace: metav1.NamespaceDefault}}
			_, err := s.cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).
				Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case err == nil:
				return errors.New("it accepts what fastadmit denies")
			case strings.Contains(err.Error(), errMarker.Error()):
				return nil
			}
			return fmt.Errorf("its last answer: %w", err)
		})
	}
}

var errMarker = errors.New("fastadmit is being called")

// marker is a plugin that shows Start that kube-apiserver calls fastadmit. It
// denies a ConfigMap of one name in each phase, and nothing else.
func marker() admission.Plugin {
	deny := func(phase admission.Phase) func(context.Context, *codec.Review) admission.Result {
		return func(_ context.Context, review *codec.Review) admission.Result {
			if review.Name() == markerName(phase) {
				return admission.Denied(admission.Forbidden(review, errMarker))
			}
			return admission.Allowed()
		}
	}
	return admission.Plugin{
		Name: "EnvtestMarker", Summary: "denies two ConfigMaps", Mutates: true, Validates: true,
		Rules: []admission.Rule{admission.NewRule("", "v1", "configmaps", codec.Create)},
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: deny(admission.Mutate), Validate: deny(admission.Validate)}, nil
		},
	}
}

func markerName(phase admission.Phase) string { return "fastadmit-envtest-" + phase.String() }

// await waits until is returns nil.
func await(t testing.TB, what string, is func() error) {
	t.Helper()
	for deadline := time.Now().Add(startMax); ; time.Sleep(20 * time.Millisecond) {
		err := is()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %v", startMax, what, err)
		}
	}
}

// A buffer collects what is written to it, by any number of goroutines.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}
