// Package config reads the configuration file of fastadmit and the configuration files of
// kube-apiserver's admission plugins.
package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/imagereview"
	"github.com/fastadmit/fastadmit/internal/registration"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// The apiVersion and kind of fastadmit's configuration file.
const (
	APIVersion = "fastadmit.io/v1alpha1"
	Kind       = "Configuration"
)

// Configuration is fastadmit's own configuration file.
type Configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// EnableAdmissionPlugins are the plugins to run. The flag --enable-admission-plugins overrides this list.
	EnableAdmissionPlugins []string `json:"enableAdmissionPlugins,omitempty"`
	// EmulatedVersion is the minor release of Kubernetes as which plugins behave, such as 1.34. The flag
	// --emulated-version overrides it. Without both, it is the release of the API server. Without an API server, it is
	// the newest.
	EmulatedVersion string `json:"emulatedVersion,omitempty"`
	// Server has the same settings as the flags of serve. A flag overrides its field. Changes take effect at the next
	// start.
	Server Server `json:"server,omitzero"`
	// Record has the settings for recording reviews and their answers. Changes take effect at the next start.
	Record Record `json:"record,omitzero"`
	// Shadow has plugins and settings to try: what would be answered with them is compared with the answers, and
	// decides nothing.
	Shadow Shadow `json:"shadow,omitzero"`
	// Plugins has settings for single plugins. An entry does not enable its plugin.
	Plugins []Plugin `json:"plugins,omitempty"`
	// PodTemplatePaths are custom workloads for the field workloadPods of plugins: resources with their groups, such as
	// rollouts.argoproj.io, each with the path of its template of Pods, such as .spec.template.
	PodTemplatePaths workload.Paths `json:"podTemplatePaths,omitempty"`
	// Registration has settings of the webhook configurations that "fastadmit manifests" prints and that fastadmit
	// registers itself.
	Registration registration.Options `json:"registration,omitzero"`
	// ImageReview has the rules for images, for API servers that send ImageReviews to /imagereview. Without it, this
	// endpoint does not exist.
	ImageReview *imagereview.Policy `json:"imageReview,omitempty"`
}

// Plugin has the settings of one plugin. They correspond to the fields of a
// webhook in a webhook configuration.
type Plugin struct {
	// Name is the plugin's name, as "fastadmit plugins" prints it.
	Name           string `json:"name"`
	match.Criteria `json:",inline"`
	// MatchConditions are CEL expressions. The plugin gets only the reviews that rules and
	// selectors select and for which all expressions are true.
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
	// FailurePolicy decides what happens if the plugin fails or takes too long. Fail, the
	// default, fails the request. Ignore continues without the plugin.
	FailurePolicy admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
	// Timeout is how long the plugin may take, at most 30s. Without it, the plugin
	// may take as long as the call.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// ReinvocationPolicy decides whether the plugin runs again after a later plugin
	// has changed the object: Never, the default, or IfNeeded.
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`
	// Enforcement decides what happens if the plugin denies a request. The first entry
	// whose selectors match decides. If none matches, the request is denied.
	Enforcement []Enforcement `json:"enforcement,omitempty"`
	// WorkloadPods decides what a workload, such as a Deployment, is told when it is written and the plugin would deny
	// its Pods: nothing (off, the default), a warning (warn), or their denial (deny).
	WorkloadPods admission.WorkloadPods `json:"workloadPods,omitempty"`
}

// Enforcement is the effect of a plugin's denials for the requests that it selects.
type Enforcement struct {
	// Action is deny, warn (the request is allowed, and the user gets the message as a warning) or audit (the request is
	// allowed, and the message is written to the audit log).
	Action admission.Action `json:"action"`
	// NamespaceSelector selects requests by the labels of their namespace. Without it, all match.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector selects requests by the labels of the object. Without it, all match.
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
}

// timeoutMax is the maximum of timeoutSeconds in a webhook configuration.
const timeoutMax = 30 * time.Second

// Source contains the names of the files to read, and what Read needs to check them.
type Source struct {
	File          string // fastadmit's own configuration, "" for none
	AdmissionFile string // an AdmissionConfiguration, "" for none
	// Known are the names of all plugins.
	Known []string
	// NotHere has the names of Kubernetes' plugins that fastadmit does not have, each
	// with the reason.
	NotHere map[string]string
	// Namespaces looks up labels for selectors. Read does not call it; reviews do.
	Namespaces match.Namespaces
	// Compile compiles the match conditions of a plugin with this failure policy. The
	// conditions are valid; the path is their place in the file.
	Compile func(plugin string, conditions []admissionregistrationv1.MatchCondition,
		failurePolicy admissionregistrationv1.FailurePolicyType, path *field.Path) (Conditions, field.ErrorList)
	// NoKubeconfigs leaves out the kubeconfig files that configurations of plugins name,
	// and so the files that those name.
	NoKubeconfigs bool
	// Tree has the files to read.
	Tree files.Tree
	// ReadFile reads the files; Tree.Read if it is nil.
	ReadFile func(name string) ([]byte, error)
}

// Conditions are compiled match conditions.
type Conditions interface {
	admission.Selector
	// UsesAuthorizer reports whether an expression checks permissions, for which the
	// API server is asked.
	UsesAuthorizer() bool
}

// Loaded is the result of Read.
type Loaded struct {
	Configuration
	// Settings are the settings of the plugins, and Configs their own configuration
	// files, by the name of the plugin.
	Settings map[string]admission.Settings
	Configs  map[string][]byte
	// Manifests are, by plugin, the files of the folder that the plugin's
	// configuration file names.
	Manifests map[string][]admission.File
	// Kubeconfigs are, by plugin, the kubeconfig file that the plugin's configuration
	// file names. It contains the files that it refers to.
	Kubeconfigs map[string][]byte
	// NeedsNamespaces is true if there are namespaceSelectors.
	NeedsNamespaces bool
	// NeedsAccess is true if match conditions check permissions.
	NeedsAccess bool
	// Files are the names of all files that were read or could not be read. Folders
	// are the folders of Manifests.
	Files, Folders []string
	// Digest identifies the content: equal files, read in the same order, have the
	// same Digest.
	Digest string

	// Unread are the plugins whose own configuration file cannot be read. They seem to have none.
	Unread []string

	places map[string]place // of Configs

	// Shadowed is the configuration with the lines of Shadow in their places, nil if there are none. Its
	// EnableAdmissionPlugins do not include those of Shadow.
	Shadowed *Loaded
}

// Read reads all files. The error joins all errors in all files. If there is one,
// only the Files of the result may be used.
func Read(source Source) (*Loaded, error) {
	if source.ReadFile == nil {
		source.ReadFile = source.Tree.Read
	}
	r := &reader{source: &source, digest: sha256.New()}
	loaded := &Loaded{Configuration: Configuration{Server: DefaultServer(), Record: DefaultRecord(), Shadow: DefaultShadow()}}
	var document *strictyaml.Document
	if source.File != "" {
		if document = r.read(source.File, Kind, &loaded.Configuration); document != nil {
			loaded.Settings = r.checkConfiguration(document, &loaded.Configuration)
		}
	}
	if source.AdmissionFile != "" {
		loaded.Configs = r.readAdmission(source.AdmissionFile)
	}
	r.finish(loaded)
	if document != nil {
		loaded.Shadowed = r.readShadow(document, loaded)
	}
	loaded.Files, loaded.Folders = r.files, r.folders
	loaded.Digest = hex.EncodeToString(r.digest.Sum(nil))
	return loaded, strictyaml.Join(r.errs...)
}

// finish sets what was read besides the Configuration.
func (r *reader) finish(l *Loaded) {
	l.NeedsNamespaces, l.NeedsAccess, l.places, l.Unread = r.needsNamespaces, r.needsAccess, r.places, r.unread
	l.Manifests, l.Kubeconfigs = r.manifests, r.kubeconfigs
}

// A reader gathers what is wrong.
type reader struct {
	source          *Source
	needsNamespaces bool
	needsAccess     bool
	files, folders  []string
	manifests       map[string][]admission.File
	kubeconfigs     map[string][]byte
	places          map[string]place
	unread          []string // plugins
	digest          hash.Hash
	errs            []error
}

func (r *reader) refuse(errs ...error) { r.errs = append(r.errs, errs...) }

// readFile reads a file of the configuration.
func (r *reader) readFile(name string) ([]byte, error) {
	r.files = append(r.files, name)
	content, err := r.source.ReadFile(name)
	r.count(content)
	return content, err
}

// count adds the contents of a file to the digest.
func (r *reader) count(content []byte) {
	sum := sha256.Sum256(content) // so that it matters where a file ends
	r.digest.Write(sum[:])
}

// read decodes a file. The document is nil if there is no use in going on.
func (r *reader) read(file, kind string, into any) *strictyaml.Document {
	content, err := r.readFile(file)
	if err != nil {
		r.refuse(fmt.Errorf("cannot read configuration: %w", err))
		return nil
	}
	document, err := strictyaml.Parse(file, content)
	if err != nil {
		r.refuse(err)
		return nil
	}
	if flag, ok := flagOf[document.Text("kind")]; ok && document.Text("kind") != kind {
		r.refuse(document.Errorf("kind", "got %q, want %q: %s takes this file", document.Text("kind"), kind, flag))
		return nil
	}
	errs, decoded := document.Decode(into)
	r.refuse(errs...)
	if !decoded {
		return nil
	}
	return document
}

// flagOf has the flag that takes a file of a kind.
var flagOf = map[string]string{Kind: "--config", admissionKind: "--admission-control-config-file"}

func (r *reader) checkType(document *strictyaml.Document, apiVersion, kind, wantKind string, wantVersions ...string) {
	if kind != wantKind {
		r.refuse(document.Errorf("kind", "got %q, want %q", kind, wantKind))
	}
	if !slices.Contains(wantVersions, apiVersion) {
		r.refuse(document.Errorf("apiVersion", `got %q, want "%s"`, apiVersion, strings.Join(wantVersions, `" or "`)))
	}
}

// checkName checks the name of a plugin that is configured. Configured are
// those before.
func (r *reader) checkName(document *strictyaml.Document, path, name string, configured map[string][]byte) bool {
	if !slices.Contains(r.source.Known, name) {
		if reason, ok := r.source.NotHere[name]; ok {
			r.refuse(document.Errorf(path, "fastadmit has no plugin %s: it %s", name, reason))
			return false
		}
		r.refuse(document.Errorf(path, "unknown plugin %q%s (fastadmit plugins lists all)", name, alike.Hint(name, r.source.Known)))
		return false
	}
	if _, twice := configured[name]; twice {
		r.refuse(document.Errorf(path, "%s is configured twice", name))
		return false
	}
	configured[name] = nil
	return true
}

func (r *reader) checkConfiguration(document *strictyaml.Document, c *Configuration) map[string]admission.Settings {
	r.checkType(document, c.APIVersion, c.Kind, Kind, APIVersion)
	if c.EmulatedVersion != "" {
		if _, _, err := admission.ParseVersion(c.EmulatedVersion); err != nil {
			r.refuse(document.Errorf("emulatedVersion", "%s", err))
		}
	}
	enabled := make(map[string][]byte)
	for i, name := range c.EnableAdmissionPlugins {
		r.checkName(document, fmt.Sprintf("enableAdmissionPlugins[%d]", i), name, enabled)
	}
	for _, fault := range c.Server.Faults() {
		r.refuse(document.Errorf("server."+fault.Field, "%s", fault.Text))
	}
	for _, fault := range c.Record.Faults() {
		r.refuse(document.Errorf("record."+fault.Field, "%s", fault.Text))
	}
	r.locate(document, c.Registration.Validate(field.NewPath("registration")))
	r.locate(document, c.ImageReview.Validate(field.NewPath("imageReview")))
	if err := c.PodTemplatePaths.Check(); err != nil {
		r.refuse(document.Errorf("podTemplatePaths", "%s", err))
	}
	return r.allSettings(document, c.Plugins, c.PodTemplatePaths, field.NewPath("plugins"))
}

// allSettings makes the settings of plugins ready.
func (r *reader) allSettings(document *strictyaml.Document, plugins []Plugin, templates workload.Paths, path *field.Path) map[string]admission.Settings {
	configured := make(map[string][]byte)
	settings := make(map[string]admission.Settings)
	for i := range plugins {
		path := path.Index(i)
		name := plugins[i].Name
		r.checkName(document, path.Child("name").String(), name, configured)
		own := r.settings(document, &plugins[i], path)
		own.PodTemplatePaths = templates
		settings[name] = own
	}
	return settings
}

// settings makes the settings of a plugin ready.
func (r *reader) settings(document *strictyaml.Document, p *Plugin, path *field.Path) admission.Settings {
	settings := admission.Settings{Selector: r.selector(document, &p.Criteria, path)}
	if len(p.MatchConditions) > 0 {
		settings.Selector = r.conditions(document, p, path.Child("matchConditions"), settings.Selector)
	}
	settings.FailurePolicy = oneOf(r, document, path.Child("failurePolicy"), p.FailurePolicy,
		"", admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	settings.ReinvocationPolicy = oneOf(r, document, path.Child("reinvocationPolicy"), p.ReinvocationPolicy,
		"", admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)
	settings.WorkloadPods = oneOf(r, document, path.Child("workloadPods"), p.WorkloadPods,
		"", admission.WorkloadPodsOff, admission.WorkloadPodsWarn, admission.WorkloadPodsDeny)
	if p.Timeout != nil {
		if timeout := p.Timeout.Duration; timeout > 0 && timeout <= timeoutMax {
			settings.Timeout = timeout
		} else {
			r.refuse(document.Errorf(path.Child("timeout").String(), "got %s, want more than 0s and at most %s", timeout, timeoutMax))
		}
	}
	for i, e := range p.Enforcement {
		path := path.Child("enforcement").Index(i)
		action := oneOf(r, document, path.Child("action"), e.Action, admission.ActionDeny, admission.ActionWarn, admission.ActionAudit)
		criteria := match.Criteria{NamespaceSelector: e.NamespaceSelector, ObjectSelector: e.ObjectSelector}
		settings.Enforcement = append(settings.Enforcement, admission.Enforcement{
			Action: action, Selector: r.selector(document, &criteria, path),
		})
	}
	return settings
}

// oneOf refuses a value that is none of those. An empty one that may be left
// out is not shown as a choice. It returns the value, or the first one instead, so that nothing refuses the value again.
func oneOf[T ~string](r *reader, document *strictyaml.Document, path *field.Path, got T, want ...T) T {
	if slices.Contains(want, got) {
		return got
	}
	var shown []string
	for _, w := range want {
		if w != "" {
			shown = append(shown, string(w))
		}
	}
	r.refuse(document.Errorf(path.String(), "got %q, want one of %s", got, strings.Join(shown, ", ")))
	return want[0]
}

// selector makes criteria ready, nil for those that select everything.
func (r *reader) selector(document *strictyaml.Document, c *match.Criteria, path *field.Path) admission.Selector {
	if c.Rules == nil && c.NamespaceSelector == nil && c.ObjectSelector == nil {
		return nil
	}
	matcher, err := match.New(c, path)
	if err != nil {
		r.locate(document, err)
		return nil
	}
	r.needsNamespaces = r.needsNamespaces || matcher.NeedsNamespaces()
	return &selector{matcher, r.source.Namespaces}
}

// conditions makes the match conditions of a plugin ready, which are asked about what
// a selector selects, nil for all.
func (r *reader) conditions(document *strictyaml.Document, p *Plugin, path *field.Path, selected admission.Selector) admission.Selector {
	if errs := match.ValidateConditions(p.MatchConditions, path); len(errs) > 0 {
		r.locate(document, errs.ToAggregate())
		return nil
	}
	compiled, errs := r.source.Compile(p.Name, p.MatchConditions, p.FailurePolicy, path)
	if len(errs) > 0 {
		r.locate(document, errs.ToAggregate())
		return nil
	}
	r.needsAccess = r.needsAccess || compiled.UsesAuthorizer()
	if selected == nil {
		return compiled
	}
	return both{selected, compiled}
}

// both selects what two selectors do. The second one is asked about what the first one
// selects.
type both [2]admission.Selector

// Matches implements admission.Selector.
func (b both) Matches(ctx context.Context, review *codec.Review, attributes admission.Attributes) (bool, error) {
	if matches, err := b[0].Matches(ctx, review, attributes); err != nil || !matches {
		return false, err
	}
	return b[1].Matches(ctx, review, attributes)
}

// Explain implements admission.Explainer.
func (b both) Explain(ctx context.Context, review *codec.Review, attributes admission.Attributes) string {
	var reasons []string
	for _, s := range b {
		if explainer, ok := s.(admission.Explainer); ok {
			reasons = append(reasons, explainer.Explain(ctx, review, attributes))
		}
		if matches, err := s.Matches(ctx, review, attributes); err != nil || !matches {
			break
		}
	}
	return strings.Join(reasons, "; ")
}

// locate refuses what an error joins.
func (r *reader) locate(document *strictyaml.Document, err error) {
	if joined, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		r.refuse(document.Locate(joined.Errors()...)...)
	} else {
		r.refuse(document.Locate(err)...) // or nil, which errors.Join leaves out
	}
}

// A selector is a matcher and who knows the labels of namespaces.
type selector struct {
	matcher    *match.Matcher
	namespaces match.Namespaces
}

// Matches implements admission.Selector.
func (s *selector) Matches(ctx context.Context, review *codec.Review, attributes admission.Attributes) (bool, error) {
	return s.matcher.Matches(ctx, review, &attributes, s.namespaces)
}

// Explain implements admission.Explainer.
func (s *selector) Explain(ctx context.Context, review *codec.Review, attributes admission.Attributes) string {
	_, why := s.matcher.Explain(ctx, review, &attributes, s.namespaces)
	return why
}
