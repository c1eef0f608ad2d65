package bench

import "testing"

func TestFormat(t *testing.T) {
	f := func(unit Unit, value float64, want string) {
		t.Helper()
		if got := unit.Format(value); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(Number, 0, "0")
	f(Number, 3, "3")
	f(Number, 0.01234, "0.0123")
	f(Number, 0.1234, "0.12")
	f(Number, 1.235, "1.24")
	f(Number, 9.9985, "10.0")
	f(Number, 99.96, "100")
	f(Number, 12345.6, "12346")
	f(Number, -1.5, "-1.50")
	f(Time, 0.5, "0.50 µs")
	f(Time, 999, "999 µs")
	f(Time, 1000, "1 ms")
	f(Time, 1_234_567, "1.23 s")
	f(Time, 4e9, "4000 s")
	f(Bytes, 1023, "1023 B")
	f(Bytes, 1536, "1.50 KiB")
	f(Bytes, 3<<20, "3 MiB")
}
