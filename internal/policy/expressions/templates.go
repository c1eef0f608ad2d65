package expressions

import "strings"

// templates are the templates of a feature, by the kind of their value. In a
// template, $ and a letter stand for an expression of a kind.
type templates map[Kind][]string

func of(lines string) []string {
	var all []string
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// literals are the literals of a kind. The list that is named L has no other form.
var literals = map[Kind][]string{
	'b': of("true\nfalse"),
	'i': of("0\n1\n-1\n2\n7\n9223372036854775807\n-9223372036854775808\n1024\nsize('ä€😀')"),
	'd': of("0.0\n1.0\n-1.5\n1e3\n1e308\n0.1\n3.14"),
	's': of(`'a'
		''
		'app'
		'ä€😀'
		"it's"
		r'\d'
		'a\nb'
		' a '
		'2024-01-02T03:04:05Z'
		'1.2.3'
		'10.0.0.1'
		'100m'
		'12'
		'1.5'
		'true'
		'web-0'
		'a,b,,c'`),
	'l': of("[]\n[1, 2, 3]\n['b', 'a', 'b']\n[1.5, 0.5]\n[[1], [2, 3]]\n[true, false]\n[{'name': 'a'}, {'name': 'b'}]"),
	'L': of("[]\n[1, 2, 3]\n['b', 'a', 'b']\n[1.5, 0.5]\n[[1], [2, 3]]\n[true, false]\n[{'name': 'a'}, {'name': 'b'}]"),
	'm': of("{}\n{'a': 1, 'b': 2}\n{'app': 'web'}\n{'x': {'y': [1]}}"),
	'x': of("null\ne\nv\nobject\noldObject\n{}\n[]\nb'abc'\n1u\nint\ndyn(1)\nrequest\nnamespaceObject\nvariables"),
	't': of("timestamp('2024-02-29T23:59:59Z')\ntimestamp('2024-02-29T23:59:59.5+05:30')\ntimestamp(0)\n" +
		"namespaceObject.metadata.creationTimestamp"),
	'w': of("duration('1h30m')\nduration('0s')\nduration('-1.5s')\nduration('100h')"),
	'q': of("quantity('1Gi')\nquantity('100m')\nquantity('-1.5e3')\nquantity('0')\nquantity('9223372036854775807')\n" +
		"quantity('1e30')\nquantity('x')"),
	'a': of("ip('10.0.0.1')\nip('::1')\nip('fe80::1')\nip('224.0.0.1')\nip('8.8.8.8')\nip('127.0.0.1')\n" +
		"ip('::ffff:1.2.3.4')\nip('300.1.1.1')"),
	'c': of("cidr('10.0.0.0/8')\ncidr('::/0')\ncidr('192.168.1.5/24')\ncidr('fe80::/64')\ncidr('10.0.0.0/33')"),
	'u': of("url('https://user@example.com:80/a%20b?q=1&q=2&r')\nurl('/path/x')\nurl('http://[::1]:8080')\nurl('nope')\nurl('mailto:a@b')"),
	'v': of("semver('1.2.3')\nsemver('1.0.0-rc.1+build')\nsemver('v1.2', true)\nsemver('01.2.3')\nsemver('10.0.0')\nsemver('1.2')"),
	'f': of("format.dns1123Label()\nformat.named('uuid').value()\nformat.labelValue()\nformat.qualifiedName()\nformat.uri()\n" +
		"format.date()\nformat.datetime()\nformat.byte()\nformat.dns1035Label()\nformat.dns1123SubdomainPrefix()\nformat.named('nope').value()"),
	'o': of("optional.none()\noptional.of(1)\noptional.ofNonZeroValue('')\noptional.of({'a': 1})\nobject[?'metadata']\n" +
		"object.?spec.?nodeName"),
	'r': of(`'^[a-z]+$'
		'a|b'
		'(a+)+$'
		'[0-9]{1,3}'
		r'\w+@\w+'
		'('
		''
		'(?i)WEB'
		'.*'`),
	'g': of("authorizer.group('').resource('pods')\nauthorizer.group('apps').resource('deployments')\nauthorizer.requestResource"),
	'z': of("authorizer.path('/healthz').check('get')\nauthorizer.requestResource.check('get')\nauthorizer.group('').resource('pods')" +
		".check('create')\n" +
		"authorizer.serviceAccount('shop', 'default').group('').resource('secrets').check('list')"),
}

// requestPaths are the fields that exist for any object.
var requestPaths = templates{
	's': of("request.operation\nrequest.name\nrequest.namespace\nrequest.kind.kind\nrequest.kind.group\nrequest.resource.resource\n" +
		"request.subResource\nrequest.requestSubResource\nrequest.requestKind.version\nrequest.requestResource.resource\n" +
		"request.userInfo.username\nrequest.userInfo.uid\nnamespaceObject.metadata.name\nnamespaceObject.status.phase\n" +
		"namespaceObject.metadata.UID\n" +
		"namespaceObject.metadata.resourceVersion\nnamespaceObject.metadata.labels['env']\nnamespaceObject.metadata.annotations['note']"),
	'b': of("request.dryRun\nhas(request.namespace)\nhas(request.subResource)\nhas(request.dryRun)\n" +
		"has(request.options)\nhas(request.userInfo.extra)\n" +
		"has(request.name)\nobject == null\noldObject == null\nnamespaceObject == null\nrequest.options == null\n" +
		"has(namespaceObject.metadata.labels)\n" +
		"has(namespaceObject.metadata.deletionTimestamp)\nhas(namespaceObject.status.conditions)\nhas(request.kind)\nhas(request.operation)"),
	'l': of("request.userInfo.groups\nrequest.userInfo.extra['k']\nnamespaceObject.spec.finalizers\nnamespaceObject.metadata.finalizers\n" +
		"namespaceObject.status.conditions"),
	'm': of("request.userInfo.extra\nrequest.options\nnamespaceObject.metadata.labels\nnamespaceObject.metadata.annotations"),
	'i': of("namespaceObject.metadata.generation\nnamespaceObject.metadata.deletionGracePeriodSeconds"),
	'x': of("request\nrequest.kind\nrequest.userInfo\nnamespaceObject\nnamespaceObject.metadata\nobject\noldObject\nrequest.options"),
	't': of("namespaceObject.metadata.creationTimestamp\nnamespaceObject.metadata.deletionTimestamp"),
}

// features are the features of CEL without a library, "core", and those of the
// libraries.
var features = map[string]templates{
	"core": {
		'b': of(`$x == $x
			$x != $x
			$s == $s
			$i == $d
			has($p.name)
			has($p.metadata)
			$b && $b
			$b || $b
			!$b
			$b ? $b : $b
			$x in $l
			$s in $m
			$i in $m
			$i < $i
			$d >= $i
			$x < $x
			$s <= $s
			$x == null
			type($x) == type($x)
			type($x) == string
			$L.all(e, $b)
			$L.exists(e, e == $x)
			$L.exists(e, $b || e == $x)
			$L.exists_one(e, e == $x)
			$m.all(k, k != '')
			$m == $m
			$l == $l
			$t < $t
			$w > $w
			bool($s)
			$s.contains($s)
			$s.startsWith($s)
			$s.endsWith($s)`),
		'i': of(`$i + $i
			$i - $i
			$i * $i
			$i / $i
			$i % $i
			-$i
			size($s)
			size($l)
			size($m)
			size($x)
			$l.size()
			int($s)
			int($d)
			int($t)
			int(uint($i))
			$b ? $i : $i
			$t.getFullYear()
			$t.getDayOfWeek('+05:30')
			$t.getHours('Europe/Berlin')
			$w.getMinutes()
			$m.map(k, k).size()
			$m.filter(k, k == $s).size()`),
		'd': of("$d + $d\n$d * $d\n$d / $d\ndouble($s)\ndouble($i)\n-$d\n$b ? $d : $d"),
		's': of("$s + $s\nstring($x)\nstring($i)\nstring($d)\nstring($b)\nstring($t)\nstring($w)\nstring(bytes($s))\n" +
			"$b ? $s : $s\nstring($m)\n$l[$i]\n$m[$s]"),
		'l': of("[$x, $x]\n[$s, $s]\n$l + $l\n$L.map(e, $x)\n$L.map(e, e)\n$L.filter(e, $b)\n$L.filter(e, e != $x)\n" +
			"$L.map(e, $b, $x)\n$b ? $l : $l\n$l[$i]\n$m[$s]"),
		'L': of("$L + $L\n$L.map(e, $s)\n$L.filter(e, $b)\n[$x, $x]\n[$s, $s]"),
		'm': of("{'a': $x, 'b': $x}\n{$s: $x}\n{$i: $s, 'a': $s}\n$b ? $m : $m\n$m[$s]\n$l[$i]"),
		'x': of("$l[$i]\n$m[$s]\n$p\n$p[$s]\n$p[$i]\n$b ? $x : $x\ntype($x)\ndyn($x)\n$s\n$i\n$l\n$m\n$b"),
		't': of("timestamp($s)\n$t + $w\n$t - $w"),
		'w': of("duration($s)\n$t - $t\n$w + $w"),
	},
	"strings": {
		'i': of("$s.indexOf($s)\n$s.indexOf($s, $i)\n$s.lastIndexOf($s)\n$s.lastIndexOf($s, $i)"),
		's': of("$s.charAt($i)\n$s.lowerAscii()\n$s.upperAscii()\n$s.replace($s, $s)\n$s.replace($s, $s, $i)\n" +
			"$s.substring($i)\n$s.substring($i, $i)\n" +
			"$s.trim()\n$l.join()\n$l.join($s)\n'%s %s'.format([$x, $x])\n'%d %.2f'.format([$i, $d])\n'%s'.format($l)\n" +
			"'%b %x %X'.format([$b, $i, $s])\n" +
			"'%e %o'.format([$d, $i])\n'%%'.format([])\n'%z'.format([$x])\nstrings.quote($s)\n$s.reverse()"),
		'l': of("$s.split($s)\n$s.split($s, $i)\n$s.split(',')"),
	},
	"lists": {
		'b': of("$L.isSorted()\n$l == $l.distinct()\n$l.indexOf($x) > 0"),
		'i': of("$L.indexOf($x)\n$L.lastIndexOf($x)\n$L.sum()\n$L.size()"),
		'x': of("$L.min()\n$L.max()\n$L.sum()\n$L.first()\n$L.last()\n$L.first().orValue($x)\n$L.last().hasValue()"),
		'l': of("$L.slice($i, $i)\n$L.flatten()\n$L.flatten($i)\n$L.distinct()\n$L.reverse()\n$L.sort()\n" +
			"$L.sortBy(e, e)\n$L.sortBy(e, e.name)\n" +
			"lists.range(3)\nlists.range($i % 100)\n$L.sortBy(e, $s)"),
		'L': of("$L.flatten()\n$L.distinct()\n$L.reverse()\n$L.sort()\nlists.range(5)"),
	},
	"regex": {
		'b': of("$s.matches($r)\n$s.matches($s)\n$s.find($r) == $s\n$l.all(e, e.matches($r))"),
		's': of("$s.find($r)\n$s.find($s)"),
		'l': of("$s.findAll($r)\n$s.findAll($r, $i)"),
	},
	"url": {
		'b': of("isURL($s)\n$u == $u\nurl($s) == $u\nisURL($x)\n'q' in $u.getQuery()"),
		's': of("$u.getScheme()\n$u.getHost()\n$u.getHostname()\n$u.getPort()\n$u.getEscapedPath()\nstring($u)"),
		'm': of("$u.getQuery()"),
		'x': of("$u\nurl($s)\n$u.getQuery()['q']"),
	},
	"quantity": {
		'b': of("isQuantity($s)\n$q.isGreaterThan($q)\n$q.isLessThan($q)\n$q == $q\n$q.isInteger()\nquantity($s).isLessThan($q)\n" +
			"isQuantity($x)\n" +
			"$q.compareTo($q) == $i"),
		'i': of("$q.asInteger()\n$q.sign()\n$q.compareTo($q)"),
		'd': of("$q.asApproximateFloat()"),
		'q': of("$q.add($q)\n$q.sub($q)\n$q.add($i)\n$q.sub($i)\nquantity($s)"),
		'x': of("$q\nquantity($x)\nstring($q)"),
	},
	"ip": {
		'b': of("isIP($s)\n$a.isUnspecified()\n$a.isLoopback()\n$a.isLinkLocalMulticast()\n$a.isLinkLocalUnicast()\n$a.isGlobalUnicast()\n" +
			"ip.isCanonical($s)\n$a == $a\nisIP($x)\nip($s) == $a"),
		'i': of("$a.family()"),
		's': of("string($a)"),
		'x': of("$a\nip($s)"),
	},
	"cidr": {
		'b': of("isCIDR($s)\n$c.containsIP($a)\n$c.containsIP($s)\n$c.containsCIDR($c)\n$c.containsCIDR($s)\n" +
			"$c == $c\ncidr($s) == $c\nisCIDR($x)"),
		'i': of("$c.prefixLength()\n$c.ip().family()"),
		's': of("string($c)\nstring($c.masked())\nstring($c.ip())"),
		'x': of("$c\n$c.masked()\n$c.ip()"),
	},
	"format": {
		'b': of("$f.validate($s).hasValue()\n!$f.validate($s).hasValue()\nformat.named($s).hasValue()\n$f == $f"),
		'x': of("$f.validate($s)\n$f.validate($s).value()\n$f.validate($s).orValue([])\n$f"),
		'l': of("$f.validate($s).orValue([])\n$f.validate($s).value()"),
	},
	"semver": {
		'b': of("isSemver($s)\nisSemver($s, $b)\n$v.isLessThan($v)\n$v.isGreaterThan($v)\n$v == $v\nsemver($s) == $v\nisSemver($x)"),
		'i': of("$v.major()\n$v.minor()\n$v.patch()\n$v.compareTo($v)"),
		'x': of("$v\nsemver($s)\nsemver($s, $b)"),
	},
	"sets": {
		'b': of("sets.contains($l, $l)\nsets.equivalent($l, $l)\nsets.intersects($l, $l)\nsets.contains($x, $l)"),
	},
	"optional": {
		'b': of("$o.hasValue()\n$p.?name.hasValue()\n$m[?$s].hasValue()\n$l[?$i].hasValue()\n$o == $o\nhas($p.?name.x)\n" +
			"optional.ofNonZeroValue($x).hasValue()"),
		'o': of("$p.?name\n$p.?metadata.?labels\n$m[?$s]\n$l[?$i]\noptional.of($x)\noptional.ofNonZeroValue($x)\n" +
			"$o.or($o)\n$o.optMap(e, $x)\n$o.optMap(e, e)\n" +
			"$o.optFlatMap(e, $o)\n$p.?metadata.?name"),
		'x': of("$o.value()\n$o.orValue($x)\n$o\n[?$o, $x]\n{?'a': $o, 'b': $x}"),
		's': of("$p.?name.orValue($s)\n$o.orValue($s)\n$m[?$s].orValue($s)"),
		'i': of("$o.orValue($i)\n$l[?$i].orValue($i)"),
		'l': of("$o.orValue($l)\n[?$o]\n$p.?items.orValue($l)"),
		'm': of("$o.orValue($m)\n{?$s: $o}"),
	},
	"authorizer": {
		'b': of("$z.allowed()\n$z.errored()\n$z.reason() == $s\n$g.check($s).allowed()\n$g.check('get').allowed() && $b"),
		's': of("$z.reason()\n$z.error()\n$g.check('delete').reason()"),
		'z': of("$g.check($s)\n$g.check('list')\n$g.check('delete')\nauthorizer.path($s).check($s)\n" +
			"authorizer.serviceAccount($s, $s).group($s).resource($s).check($s)"),
		'g': of("authorizer.group($s).resource($s)\n$g.namespace($s)\n$g.name($s)\n$g.subresource($s)\n" +
			"$g.fieldSelector('spec.nodeName=' + $s)\n" +
			"$g.labelSelector('app in (a, b),!c')\n$g.fieldSelector($s)\n$g.labelSelector($s)\n$g.labelSelector('x==y,z!=w')\n" +
			"$g.fieldSelector('a!=b')"),
		'x': of("$z\n$g"),
	},
	"comprehensions": {
		'b': of("$L.all(k, v, $b)\n$L.all(k, v, k < 3 || v == $x)\n$L.exists(k, v, v == $x)\n$L.existsOne(k, v, v == $x)\n" +
			"$m.all(k, v, k != '')\n" +
			"$L.exists(k, v, $b || k == $i)\n$L.exists_one(k, v, $b)"),
		'l': of("$L.transformList(k, v, v)\n$L.transformList(k, v, $x)\n$L.transformList(k, v, $b, [k, v])\n" +
			"$L.transformList(k, v, string(k) + $s)"),
		'm': of("$L.transformMap(k, v, v)\n$L.transformMap(k, v, $b, $x)\n$m.transformMap(k, v, v)\n$m.transformMap(k, v, k)\n" +
			"$m.transformMapEntry(k, v, {k: v})\n$L.transformMapEntry(k, v, {string(k): v})\n$L.transformMapEntry(k, v, {v: k})"),
		'L': of("$L.transformList(k, v, v)\n$L.transformList(k, v, $s)"),
	},
}
