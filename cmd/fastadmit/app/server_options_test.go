package app

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/config"
)

// TestServerOptionsOfFile has the configuration file set every option, each to another
// value than its default.
func TestServerOptionsOfFile(t *testing.T) {
	f := func(from config.Server) {
		t.Helper()
		var o serverOptions
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		o.addFlags(flags)
		err := o.fill(flags, &from)
		got, _ := json.Marshal(o.asFile())
		want, _ := json.Marshal(from)
		if err != nil || string(got) != string(want) {
			t.Errorf("got %s, %v\nwant %s", got, err, want)
		}
	}
	all := config.Server{
		BindAddress: new("127.0.0.1"), SecurePort: new(int32(443)), TLSCertFile: new("a"), TLSPrivateKeyFile: new("b"), MetricsBindAddress: new(":80"),
		ShutdownDelayDuration: &metav1.Duration{Duration: time.Second}, Profiling: new(true),
		MaxRequestsInflight: new(int64(2)), MaxRequestBytesInflight: new(int64(3)), MaxReviewMemoryBytes: new(int64(4)), MaxConnectionAge: &metav1.Duration{Duration: time.Minute},
		MaxConnections: new(int64(5)), MaxConnectionsPerAddress: new(int64(6)),
		CertSecretName: new(""), CertSecretNamespace: new("c"), WebhookOwner: new("d"), EventDeployment: new("e"), ManagedPathToken: new(false), WebhookConfigurations: []string{},
		ClientCAFile: new("f"), ClientAllowedNames: []string{"g"}, TokenAuthFile: new("h"), BasicAuthFile: new("i"), PathTokenFile: new("j"), AllowUnauthenticatedWrites: new(true),
	}
	for i := range reflect.TypeOf(all).NumField() {
		if reflect.ValueOf(all).Field(i).IsNil() {
			t.Errorf("%s is not set", reflect.TypeOf(all).Field(i).Name)
		}
	}
	f(all)
	all.TLSCertFile, all.CertSecretName, all.WebhookConfigurations = new(""), new("k"), []string{"mutating/fastadmit.io"} // instead of the certificate of a file
	f(all)
}
