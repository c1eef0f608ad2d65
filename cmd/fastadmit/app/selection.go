package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/policy/matchconditions"
	"github.com/fastadmit/fastadmit/internal/shadow"
)

// A selection has the flags that select and configure plugins. All commands that run
// plugins have them. Their names are those of kube-apiserver.
type selection struct {
	options         *options
	flags           *pflag.FlagSet
	enable, disable []string
	admissionFile   string
	configFile      string
	cluster         knownCluster
	interpretCEL    bool
	podSecurity     string // --pod-security
	emulated        emulated
	// policies are policies from --policies or the input, not from a folder of the
	// configuration.
	policies policies.Set
	// defaults enables the plugins that kube-apiserver runs by default, too, except those that call webhooks.
	defaults bool
	// images is true for a command that also serves ImageReviews. It needs no enabled
	// plugin.
	images bool
	// untrusted is true if a stranger may have written the configuration. Then plugins
	// that call the addresses in it are errors, unless allowCalls is true. Links out of a
	// folder are errors, unless allowOutside is true.
	untrusted, allowCalls, allowOutside bool
	// tree has the files of the configuration.
	tree files.Tree
	// keep, if it is set, returns whether an enabled plugin runs.
	keep func(*admission.Plugin) bool
	// shadow is the part for the shadow, nil for commands that have none.
	shadow *shadowed
	// settings are those of plugins in the last configuration that load read, and configs their own configurations.
	settings []config.Plugin
	configs  map[string][]byte
	// unused are the plugins that the last load found configured, but neither enabled nor disabled.
	unused []string
}

func (s *selection) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	s.flags, s.emulated.cmd = flags, cmd
	s.cluster.kinds = s.options.kinds()
	flags.StringSliceVar(&s.enable, "enable-admission-plugins", nil,
		"admission plugins to run, comma-separated; the order does not matter")
	flags.StringSliceVar(&s.disable, "disable-admission-plugins", nil,
		"admission plugins not to run; plugins that are not enabled do not run either")
	flags.StringVar(&s.admissionFile, "admission-control-config-file", "",
		"file with the plugins' configuration, an apiserver.config.k8s.io/v1 AdmissionConfiguration")
	flags.StringVar(&s.configFile, "config", "",
		"fastadmit's configuration file: settings of plugins, of the registration and of the server, a "+config.APIVersion+" "+config.Kind)
	flags.StringVar(&s.cluster.kubeconfig, "kubeconfig", "",
		"kubeconfig file for the API server, for plugins and namespaceSelectors that need it; if empty, the cluster of the pod")
	flags.StringVar(&s.cluster.dir, "cluster-state-dir", "",
		"folder with objects in YAML or JSON that plugins see as the cluster, instead of an API server")
	flags.Int64Var(&s.options.inTree.Tolerations.NotReadyTolerationSeconds, "default-not-ready-toleration-seconds",
		s.options.inTree.Tolerations.NotReadyTolerationSeconds,
		"tolerationSeconds of the toleration for notReady:NoExecute that DefaultTolerationSeconds adds")
	flags.Int64Var(&s.options.inTree.Tolerations.UnreachableTolerationSeconds, "default-unreachable-toleration-seconds",
		s.options.inTree.Tolerations.UnreachableTolerationSeconds,
		"tolerationSeconds of the toleration for unreachable:NoExecute that DefaultTolerationSeconds adds")
	flags.StringVar(&s.emulated.flag, "emulated-version", "", emulatedUsage)
	flags.BoolVar(&s.interpretCEL, "debug-cel-interpreter", false,
		"evaluate all CEL expressions with cel-go's interpreter only, to find out whether fastadmit's own evaluator decides something else; slower")
	completeLists(cmd, "enable-admission-plugins", s.options.names)
	completeLists(cmd, "disable-admission-plugins", s.options.names)
	completeFiles(cmd, "admission-control-config-file", manifestExtensions()...)
	completeFiles(cmd, "config", manifestExtensions()...)
	completeFiles(cmd, "cluster-state-dir")
}

// names returns the names of all plugins in order.
func (o *options) names() []string {
	table := o.table()
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].Name
	}
	return names
}

// useKubeconfig replaces the help of --kubeconfig and --cluster-state-dir.
func (s *selection) useKubeconfig(kubeconfig, dir string) {
	s.flags.Lookup("kubeconfig").Usage, s.flags.Lookup("cluster-state-dir").Usage = kubeconfig, dir
}

// unusedCluster is the help of these flags in commands that do not read the cluster.
const unusedCluster = "ignored; accepted so that you can pass the flags of serve"

// selected are the enabled plugins, with their configuration.
type selected struct {
	*config.Loaded
	enabled map[string]admission.Enabled
	chain   *admission.Chain
	tried   *tried
	shadow  *shadow.Config // of tried
}

// names returns the names of the plugins in order.
func (s *selected) names() []string {
	var names []string
	for _, plugin := range s.chain.Plugins() {
		names = append(names, plugin.Name)
	}
	return names
}

// load reads the configuration and creates the plugins. It keeps the plugins of last whose
// configuration did not change. It starts the watches that the plugins need, which go on
// until ctx ends, and does not wait for their objects. After an error, only the Files of
// the result may be used. An error about flags is one of usage.
func (s *selection) load(ctx context.Context, last *admission.Chain) (selected, error) {
	names := s.options.names()
	if err := s.checkFlags(names); err != nil {
		return selected{Loaded: new(config.Loaded)}, err
	}
	source := config.Source{
		File: s.configFile, AdmissionFile: s.admissionFile, Known: names, NotHere: notHere(), Namespaces: &s.cluster.namespaces,
		Compile: s.compileConditions, NoKubeconfigs: s.untrusted && !s.allowCalls, Tree: s.tree,
	}
	if s.cluster.imagined && s.tree == "" {
		source.ReadFile = os.ReadFile // once, and perhaps from a pipe: --config=<(kubectl get configmap ...)
	}
	loaded, wrong := config.Read(source)
	s.settings, s.configs = loaded.Plugins, loaded.Configs
	if s.cluster.dir != "" {
		wrong = errors.Join(wrong, s.cluster.checkDir(), s.trees()(s.cluster.dir).CheckLinks())
		s.cluster.others = s.policies.CheckOther()
	}
	if s.enable != nil { // by the flag
		loaded.EnableAdmissionPlugins = s.enable
	}
	version, err := s.emulated.choose(ctx, loaded.EmulatedVersion, &s.cluster)
	wrong = errors.Join(wrong, err)
	s.options.inTree.Version = version
	table := s.options.table()
	enabled := s.enabled(loaded, table, s.cluster.metrics)
	if unknown := s.policies.Apply(enabled, s.disable, names); unknown != nil {
		wrong = errors.Join(wrong, fmt.Errorf("this binary does not have the plugins of some policies: %s", strings.Join(unknown, ", ")))
	}
	if s.podSecurity != "" {
		wrong = errors.Join(wrong, s.enforcePodSecurity(enabled, loaded))
	}
	s.finish(enabled, version)
	s.noteUnused(loaded, names, enabled)
	if s.keep != nil {
		for i := range table {
			if _, ok := enabled[table[i].Name]; ok && !s.keep(&table[i]) {
				delete(enabled, table[i].Name)
			}
		}
	}
	if s.untrusted && !s.allowCalls {
		wrong = errors.Join(wrong, refuseCalls(table, enabled, loaded))
	}
	tried, err := s.shadow.choose(s, loaded, table, version)
	wrong = errors.Join(wrong, err)
	if wrong != nil {
		for _, name := range loaded.Unread { // what is wrong with it is not known
			delete(enabled, name)
		}
		return selected{Loaded: loaded}, failed(errors.Join(wrong, s.locate(loaded, checkPlugins(table, enabled)), tried.check(table)))
	}
	if len(enabled) == 0 && (!s.images || loaded.ImageReview == nil) {
		return selected{Loaded: loaded}, s.noPlugin()
	}
	needs, who := needed(table, enabled, loaded)
	if err := s.cluster.follow(ctx, append(needs, tried.needs(table)...), who); err != nil {
		return selected{Loaded: loaded}, failed(errors.Join(err, s.locate(loaded, checkPlugins(table, enabled))))
	}
	chain, err := admission.NewChain(table, enabled, s.cluster.state.Load(), last)
	err = s.locate(loaded, err)
	config, shadowErr := tried.config(table, s.cluster.state.Load())
	if err = errors.Join(err, shadowErr); err == nil {
		s.emulated.inUse.Store(&version)
	}
	return selected{loaded, enabled, chain, tried, config}, failed(err)
}

// enabled returns the enabled plugins with their configuration.
func (s *selection) enabled(loaded *config.Loaded, table []admission.Plugin, set *metrics.Set) map[string]admission.Enabled {
	enabled := make(map[string]admission.Enabled)
	for _, name := range s.withDefaults(loaded.EnableAdmissionPlugins, table) {
		if !slices.Contains(s.disable, name) {
			enabled[name] = admission.Enabled{
				Config: loaded.Configs[name], Manifests: loaded.Manifests[name], Settings: loaded.Settings[name],
				Kubeconfig: loaded.Kubeconfigs[name], Metrics: set,
			}
		}
	}
	return enabled
}

// noteUnused finds the plugins for unused.
func (s *selection) noteUnused(loaded *config.Loaded, names []string, enabled map[string]admission.Enabled) {
	s.unused = nil
	for _, name := range names {
		_, isEnabled := enabled[name]
		_, hasSettings := loaded.Settings[name]
		if _, hasConfig := loaded.Configs[name]; (hasConfig || hasSettings) && !isEnabled && !slices.Contains(s.disable, name) {
			s.unused = append(s.unused, name)
		}
	}
}

// finish sets what all plugins have in common.
func (s *selection) finish(enabled map[string]admission.Enabled, version admission.Version) {
	for name, e := range enabled {
		e.InterpretCEL, e.Version = s.interpretCEL, version
		enabled[name] = e
	}
}

// withDefaults adds the plugins that are on by default to names, if s.defaults is true. Those that call
// webhooks are not: they need configurations of a cluster.
func (s *selection) withDefaults(names []string, table []admission.Plugin) []string {
	names = slices.Clone(names)
	for i := range table {
		if p := &table[i]; s.defaults && p.OnByDefault && !p.Calls && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// leaveOut makes load leave out the plugins that count or write, and those that call servers only if
// alsoCalls is true: otherwise they are an error, or get dry runs. It returns their names after load.
func (s *selection) leaveOut(alsoCalls bool) *[]string {
	leftOut := new([]string)
	s.keep = func(p *admission.Plugin) bool {
		counts := p.SideEffects == admissionregistrationv1.SideEffectClassNoneOnDryRun && (alsoCalls || !p.Calls)
		if counts {
			*leftOut = append(*leftOut, p.Name)
		}
		return !counts
	}
	return leftOut
}

var errNoPlugin = errors.New("no admission plugin is enabled")

// noPlugin is the error if no plugin is enabled. It names the flags of the command that enable some.
func (s *selection) noPlugin() error {
	if notes := s.policies.UnboundNotes(); len(notes) > 0 { // all that there is are ConstraintTemplates
		return errors.New(notes[0].String())
	}
	var flags []string
	for _, name := range [...]string{"pod-security", "policies", "in-tree"} {
		if s.flags != nil && s.flags.Lookup(name) != nil { // a test of another engine has none
			flags = append(flags, "--"+name)
		}
	}
	text := ": name some with --enable-admission-plugins"
	if len(flags) > 0 {
		text += ", or use " + strings.Join(flags, " or ")
	}
	return fmt.Errorf("%w%s; fastadmit plugins lists all", errNoPlugin, text)
}

const podSecurity = "PodSecurity"

// enforcePodSecurity enables PodSecurity with the level and version of --pod-security.
func (s *selection) enforcePodSecurity(enabled map[string]admission.Enabled, loaded *config.Loaded) error {
	level, version, isGiven := strings.Cut(s.podSecurity, ":")
	if !isGiven {
		version = api.VersionLatest
	}
	_, wrongLevel := api.ParseLevel(level)
	parsed, wrongVersion := api.ParseVersion(version)
	// PodSecurity takes a newer version in a label or configuration for the latest. Who asks here wants to know about this one.
	if newest, _ := api.ParseVersion("v" + admission.Newest().String()); wrongVersion == nil && !parsed.Latest() && newest.Older(parsed) {
		wrongVersion = fmt.Errorf("the newest known version is %s", newest.String())
	}
	switch {
	case wrongLevel != nil:
		return fmt.Errorf("--pod-security: got %q, want privileged, baseline or restricted, with :VERSION as in restricted:v1.36", s.podSecurity)
	case wrongVersion != nil:
		return fmt.Errorf("--pod-security: got %q, want privileged, baseline or restricted, with :VERSION as in restricted:v1.36: %w",
			s.podSecurity, wrongVersion)
	}
	e, ok := enabled[podSecurity]
	if !ok {
		e = admission.Enabled{Settings: loaded.Settings[podSecurity], Metrics: s.cluster.metrics}
	}
	if loaded.Configs[podSecurity] != nil { // also if nothing else enables it
		return fmt.Errorf("--pod-security=%s: the configuration file configures %s too; use one of them", s.podSecurity, podSecurity)
	}
	e.Config = fmt.Appendf(nil, `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",`+
		`"defaults":{"enforce":%q,"enforce-version":%q}}`, level, version)
	enabled[podSecurity] = e
	return nil
}

// refuseCalls takes the plugins that call the addresses of their configuration out of enabled.
// The error names them.
func refuseCalls(table []admission.Plugin, enabled map[string]admission.Enabled, loaded *config.Loaded) error {
	var errs []error
	for i := range table {
		p := &table[i]
		if e := enabled[p.Name]; !p.Calls || e.Config == nil {
			continue
		}
		delete(enabled, p.Name)
		errs = append(errs, loaded.Locate(&admission.EnableError{Plugin: p.Name, Err: errors.New(
			"it would call the addresses here, with the credentials and commands of its kubeconfig file; --allow-plugin-calls lets it")}))
	}
	return errors.Join(errs...)
}

// addTrustFlags adds the flags for trust to a command whose input a stranger may have written.
func (s *selection) addTrustFlags(flags *pflag.FlagSet) {
	s.untrusted = true
	flags.BoolVar(&s.allowOutside, "allow-files-outside", false,
		"read files outside of the given folders: those that suites name, and those to which symbolic links lead; only for files that you trust")
	flags.BoolVar(&s.allowCalls, "allow-plugin-calls", false,
		"let plugins call the addresses that their configuration files name, and run the commands of kubeconfig files; only for files that you trust")
}

// trees returns the function that returns the files that may be read for a path of the
// command line.
func (s *selection) trees() func(path string) files.Tree {
	if s.untrusted && !s.allowOutside {
		return files.TreeOf
	}
	return files.Everywhere
}

// compileConditions implements config.Source.Compile. The variable authorizer asks the cluster.
func (s *selection) compileConditions(plugin string, conditions []admissionregistrationv1.MatchCondition,
	failurePolicy admissionregistrationv1.FailurePolicyType, path *field.Path,
) (config.Conditions, field.ErrorList) {
	compiled, errs := matchconditions.Compile(conditions, failurePolicy, &s.cluster.access, s.interpretCEL, path)
	compiled.CountErrors(plugin, s.cluster.metrics)
	return compiled, errs
}

// locate gives errors of plugins their file and line.
func (s *selection) locate(loaded *config.Loaded, err error) error {
	return loaded.Locate(s.policies.Locate(err))
}

// checkPlugins returns the errors in the configuration of plugins. It asks no cluster.
func checkPlugins(table []admission.Plugin, enabled map[string]admission.Enabled) error {
	state, err := cluster.New(cluster.Options{Embedded: true})
	if err != nil {
		return err
	}
	for i := range table {
		e := enabled[table[i].Name]
		if err := state.Follow(context.Background(), table[i].AllNeeds(e.Config)...); err != nil { // which starts nothing
			return err
		}
	}
	_, err = admission.NewChain(table, enabled, state, nil)
	return err
}

// loadOnly loads without connecting to a cluster.
func (s *selection) loadOnly(ctx context.Context) (selected, error) {
	s.cluster.kubeconfig, s.cluster.dir, s.cluster.imagined = "", "", true
	return s.load(ctx, nil)
}

// needed returns the kinds that plugins, selectors and match conditions read from the
// cluster, and the names of those that read them.
func needed(table []admission.Plugin, enabled map[string]admission.Enabled, loaded *config.Loaded) (needs []cluster.Need, who []string) {
	if loaded.NeedsNamespaces {
		needs, who = append(needs, cluster.Namespaces.Watched()), append(who, "a namespaceSelector")
	}
	if loaded.NeedsAccess {
		needs, who = append(needs, cluster.SubjectAccessReviews.Called("create").By(matchConditions)), append(who, "match conditions")
	}
	for i := range table {
		e, ok := enabled[table[i].Name]
		own := table[i].AllNeeds(e.Config)
		if !ok || len(own) == 0 {
			continue
		}
		for _, need := range own {
			needs = append(needs, need.By(table[i].Name))
		}
		who = append(who, table[i].Name)
	}
	return needs, who
}

// notHere returns the plugins of Kubernetes that fastadmit does not have, each with the
// reason.
func notHere() map[string]string {
	reasons := make(map[string]string)
	for _, p := range handlers.NotHere() {
		reasons[p.Name] = p.Reason
	}
	return reasons
}

func (s *selection) checkFlags(known []string) error {
	var unknown []string
	reasons := notHere()
	for _, name := range slices.Concat(s.enable, s.disable) {
		if reason, ok := reasons[name]; ok && !slices.Contains(known, name) {
			return fmt.Errorf("fastadmit has no admission plugin %s: it %s", name, reason)
		}
		if !slices.Contains(known, name) {
			unknown = append(unknown, fmt.Sprintf("unknown admission plugin %q%s", name, alike.Hint(name, known)))
		}
	}
	if unknown != nil {
		return fmt.Errorf("%s (fastadmit plugins lists all)", strings.Join(unknown, "; "))
	}
	for _, name := range s.enable {
		if slices.Contains(s.disable, name) {
			return fmt.Errorf("%s is both enabled and disabled", name)
		}
	}
	if s.podSecurity != "" && slices.Contains(s.disable, podSecurity) {
		return fmt.Errorf("%s is disabled, but --pod-security enables it", podSecurity)
	}
	for _, name := range known {
		if name := strings.ToLower(name); name == "fail" || name == "ignore" {
			return fmt.Errorf("a plugin cannot have the name %q, because an endpoint has it", name)
		}
	}
	return nil
}
