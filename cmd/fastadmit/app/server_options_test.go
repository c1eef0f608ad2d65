package app

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestServerSettings sets each setting, in the file or by its flag, to another value
// than its default. A flag overrides the file. A setting in neither has its default.
func TestServerSettings(t *testing.T) {
	file := config.Server{
		BindAddress: "127.0.0.1", SecurePort: 443, TLSCertFile: "a", TLSPrivateKeyFile: "b", MetricsBindAddress: ":80",
		ShutdownDelayDuration: metav1.Duration{Duration: time.Second}, ShutdownIdleDuration: metav1.Duration{Duration: time.Second},
		WriteCA: "m", Profiling: true, TracingConfigFile: "l", RecentDenials: 7,
		MaxRequestsInflight: 2, MaxRequestBytesInflight: 3, MaxReviewMemoryBytes: 4,
		MaxConnectionAge: metav1.Duration{Duration: time.Minute}, MaxConnections: 5, MaxConnectionsPerAddress: 6,
		CertSecretName: "k", CertSecretNamespace: "c", WebhookOwner: "d", EventDeployment: "e", ManagedPathToken: false,
		WebhookConfigurations: []string{"mutating/fastadmit.io"},
		ClientCAFile:          "f", ClientAllowedNames: []string{"g"}, TokenAuthFile: "h", BasicAuthFile: "i", PathTokenFile: "j",
		AllowUnauthenticatedWrites: true,
	}
	defaults := config.DefaultServer()
	for field, value := range reflect.ValueOf(file).Fields() {
		byDefault := reflect.ValueOf(defaults).FieldByIndex(field.Index)
		if reflect.DeepEqual(value.Interface(), byDefault.Interface()) {
			t.Errorf("%s: the file does not change the default", field.Name)
		}
		name := field.Tag.Get("flag")
		given := config.DefaultServer()
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		addServerFlags(flags, &given)
		if f := flags.Lookup(name); f == nil || f.Usage == "" {
			t.Fatalf("%s: there is no flag --%s with a help", field.Name, name)
		}
		// The flag sets this setting to its default, the file all others to other values.
		text := flags.Lookup(name).DefValue
		if text == "[]" {
			text = ""
		}
		if err := flags.Set(name, text); err != nil {
			t.Fatal(err)
		}
		in := file
		switch field.Name {
		case "CertSecretName":
			in.WebhookConfigurations = []string{} // they need CertSecretName
		case "TLSCertFile", "TLSPrivateKeyFile":
			continue // these two need each other, and cannot be used with CertSecretName
		}
		in.TLSCertFile, in.TLSPrivateKeyFile = "", ""
		if field.Name != "WriteCA" {
			in.WriteCA = "" // it cannot be used with CertSecretName
		}
		got, err := serverSettings(flags, &given, &in)
		if err != nil {
			t.Errorf("--%s=%s: %v", name, text, err)
			continue
		}
		want := in
		reflect.ValueOf(&want).Elem().FieldByIndex(field.Index).Set(byDefault)
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("--%s=%s:\ngot  %+v\nwant %+v", name, text, *got, want)
		}
	}
}

// TestServerSettingsFaults tests settings that cannot be used.
func TestServerSettingsFaults(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		given := config.DefaultServer()
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		addServerFlags(flags, &given)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		file := config.DefaultServer()
		if _, err := serverSettings(flags, &given, &file); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", args, err, want)
		}
	}
	f("--secure-port: got -1, want 0 to 65535", "--secure-port=-1")
	f("--secure-port: got 65536, want 0 to 65535", "--secure-port=65536")
	f("--shutdown-delay-duration: got -1s, want 0s or more", "--shutdown-delay-duration=-1s")
	f("--max-connection-age: got -1ns, want 0s or more", "--max-connection-age=-1ns")
	f("--max-requests-inflight: got 0, want 1 or more", "--max-requests-inflight=0")
	f("--max-review-memory-bytes: got -1, want 0 or more", "--max-review-memory-bytes=-1")
	f("--cert-secret-name cannot be used with --tls-cert-file", "--cert-secret-name=a", "--tls-cert-file=a", "--tls-private-key-file=b")
	f("--tls-cert-file and --tls-private-key-file must be set together", "--tls-cert-file=a")
	f("--tls-cert-file and --tls-private-key-file must be set together", "--tls-private-key-file=a")
	const made = "--write-ca cannot be used with --tls-cert-file or --cert-secret-name: it is for the certificate of neither"
	f(made, "--write-ca=a", "--cert-secret-name=b")
	f(made, "--write-ca=a", "--tls-cert-file=b", "--tls-private-key-file=c")
	f("--webhook-configurations needs --cert-secret-name", "--webhook-configurations=mutating/a")
}

// TestTracingFile tests that the server does not start with a file that it cannot use.
func TestTracingFile(t *testing.T) {
	bad := servertest.TempFile(t, "tracing.yaml",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: -1\n")
	for file, want := range map[string]string{
		"/nosuch": "cannot read --tracing-config-file: open /nosuch: no such file or directory",
		bad: "cannot read --tracing-config-file: " + bad +
			":3: samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
	} {
		_, errs, code := execute("", "serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=",
			"--enable-admission-plugins=AlwaysAdmit", "--tracing-config-file="+file)
		if code != 1 || !strings.Contains(errs, want) {
			t.Errorf("got exit code %d and %q, want 1 and %q", code, errs, want)
		}
	}
}
