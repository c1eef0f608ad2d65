package app

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/recording"
	"github.com/fastadmit/fastadmit/internal/server"
	"github.com/fastadmit/fastadmit/internal/tracing"
)

// addServerFlags adds a flag for each setting, with its value as the default. settings points to
// a config.Server or a config.Record.
func addServerFlags(flags *pflag.FlagSet, settings any) {
	for f, v := range reflect.ValueOf(settings).Elem().Fields() {
		name, usage := f.Tag.Get("flag"), f.Tag.Get("usage")
		switch p := v.Addr().Interface().(type) {
		case *string:
			flags.StringVar(p, name, *p, usage)
		case *bool:
			flags.BoolVar(p, name, *p, usage)
		case *int32:
			flags.Int32Var(p, name, *p, usage)
		case *int64:
			flags.Int64Var(p, name, *p, usage)
		case *metav1.Duration:
			flags.DurationVar(&p.Duration, name, p.Duration, usage)
		case *[]string:
			flags.StringSliceVar(p, name, *p, usage)
		}
	}
}

// serverSettings returns the settings of the configuration file, overridden by the flags that
// were given, and checks them.
func serverSettings(flags *pflag.FlagSet, given, file *config.Server) (*config.Server, error) {
	settings := *file
	override(flags, given, &settings)
	for _, fault := range settings.Faults() {
		return nil, fmt.Errorf("--%s: %s", fault.Flag, fault.Text)
	}
	switch {
	case (settings.TLSCertFile == "") != (settings.TLSPrivateKeyFile == ""):
		return nil, errors.New("--tls-cert-file and --tls-private-key-file must be set together")
	case settings.CertSecretName != "" && settings.TLSCertFile != "":
		return nil, errors.New("--cert-secret-name cannot be used with --tls-cert-file")
	case settings.WriteCA != "" && (settings.CertSecretName != "" || settings.TLSCertFile != ""):
		return nil, errors.New("--write-ca cannot be used with --tls-cert-file or --cert-secret-name: it is for the certificate of neither")
	}
	_, _, err := registeredByOthers(&settings)
	return &settings, err
}

// override sets the settings for which a flag was given.
func override(flags *pflag.FlagSet, given, settings any) {
	of := reflect.ValueOf(given).Elem()
	for f, v := range reflect.ValueOf(settings).Elem().Fields() {
		if flags.Changed(f.Tag.Get("flag")) {
			v.Set(of.FieldByIndex(f.Index))
		}
	}
}

// recordSettings are serverSettings for recording.
func recordSettings(flags *pflag.FlagSet, given, file *config.Record) (*config.Record, error) {
	settings := *file
	override(flags, given, &settings)
	for _, fault := range settings.Faults() {
		return nil, fmt.Errorf("--%s: %s", fault.Flag, fault.Text)
	}
	return &settings, nil
}

// newRecorder returns a Recorder, nil if nothing is recorded.
func newRecorder(r *config.Record, log *slog.Logger, set *metrics.Set) *recording.Recorder {
	if r.Dir == "" {
		return nil
	}
	return recording.New(&recording.Options{
		Dir: r.Dir, Sample: r.Sample, Rate: r.Rate, Resources: r.Resources,
		FilesMax: r.MaxFiles, BytesMax: r.MaxBytes, AgeMax: r.MaxAge.Duration, Secrets: r.Secrets,
		Log: log, Metrics: set,
	})
}

// newTracer returns a Tracer with the configuration in file, nil if there is no file.
func newTracer(file, version string, log *slog.Logger, set *metrics.Set) (*tracing.Tracer, error) {
	if file == "" {
		return nil, nil
	}
	c, err := tracing.Read(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read --tracing-config-file: %w", err)
	}
	return tracing.New(c, version, log, set)
}

// callersOf returns who may call according to the settings.
func callersOf(s *config.Server) *server.Callers {
	c := &server.Callers{
		CAFile: s.ClientCAFile, AllowedNames: s.ClientAllowedNames,
		TokenFile: s.TokenAuthFile, BasicFile: s.BasicAuthFile, PathTokenFile: s.PathTokenFile,
	}
	c.Managed = s.ManagedPathToken && s.CertSecretName != "" && len(s.WebhookConfigurations) == 0 && !c.Authenticates()
	return c
}
