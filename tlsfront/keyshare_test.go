package tlsfront

import (
	"bytes"
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/rand"
	"math"
	"testing"
)

// TestX25519Share: the same public key as crypto/ecdh computes from the same private one.
func TestX25519Share(t *testing.T) {
	var m shareMaker
	ours, seeds := fixed(7), fixed(7)
	for range 200 {
		seed := make([]byte, 32)
		fill(seeds, seed)
		key, err := ecdh.X25519().NewPrivateKey(seed)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := m.appendX25519(nil, ours), key.PublicKey().Bytes(); !bytes.Equal(got, want) {
			t.Fatalf("%x, want %x", got, want)
		}
	}
}

// TestMLKEMDecapsulates: crypto/mlkem takes our ciphertext for one (it is of the right length; the key that comes out is
// nobody's).
func TestMLKEMDecapsulates(t *testing.T) {
	key, err := mlkem.GenerateKey768()
	if err != nil {
		t.Fatal(err)
	}
	var m shareMaker
	rnd := fixed(1)
	for range 20 {
		ciphertext := m.appendMLKEM(nil, rnd)
		if len(ciphertext) != mlkem.CiphertextSize768 {
			t.Fatal(len(ciphertext))
		}
		if _, err := key.Decapsulate(ciphertext); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCompress compares with the formula of FIPS 203 in floating point; q is odd, so nothing lies in the middle.
func TestCompress(t *testing.T) {
	for _, d := range []uint{mlkemDU, mlkemDV} {
		for x := range uint(mlkemQ) {
			want := uint(math.Round(float64(x)*float64(uint(1)<<d)/mlkemQ)) % (1 << d)
			if got := compress(x, d); got != want {
				t.Fatalf("compress(%d, %d) = %d, want %d", x, d, got, want)
			}
		}
	}
}

// TestCoefficient: 12-bit numbers from q on are passed over.
func TestCoefficient(t *testing.T) {
	block := make([]byte, 384) // drawn from the end, two numbers in three bytes
	copy(block[378:], []byte{0x00, 0x1d, 0xff, 0xff, 0x1f, 0xd0})
	m := shareMaker{}
	for _, want := range []uint{mlkemQ - 1, 0, 0} {
		if got := m.coefficient(bytes.NewReader(block)); got != want {
			t.Fatalf("drew %d, want %d", got, want)
		}
	}
}

// unpack reads the coefficients of u (10 bits) and v (4 bits) of a ciphertext.
func unpack(ciphertext []byte) (u, v []int) {
	bit := func(i int) int { return int(ciphertext[i/8]) >> (i % 8) & 1 }
	number := func(at, bits int) (n int) {
		for i := range bits {
			n |= bit(at+i) << i
		}
		return n
	}
	for i := range 768 {
		u = append(u, number(i*10, 10))
	}
	for i := range 256 {
		v = append(v, number(7680+i*4, 4))
	}
	return u, v
}

// deviation says how many standard deviations Pearson's sum over the cells lies from what the number of preimages of
// each value makes it.
func deviation(counts []int, d uint) float64 {
	weights := make([]float64, 1<<d)
	for x := range uint(mlkemQ) {
		weights[compress(x, d)]++
	}
	total, sum := 0, 0.0
	for _, n := range counts {
		total += n
	}
	for i, n := range counts {
		want := float64(total) * weights[i] / mlkemQ
		sum += (float64(n) - want) * (float64(n) - want) / want
	}
	cells := float64(len(counts) - 1)
	return (sum - cells) / math.Sqrt(2*cells)
}

// TestMLKEMDistribution: the values of our ciphertexts come as often as those of genuine ones, and random bytes do not:
// the same test that both pass tells those.
func TestMLKEMDistribution(t *testing.T) {
	key, err := mlkem.GenerateKey768()
	if err != nil {
		t.Fatal(err)
	}
	var m shareMaker
	rnd := fixed(9)
	sources := []struct {
		name    string
		genuine bool
		next    func() []byte
	}{
		{"ours", true, func() []byte { return m.appendMLKEM(nil, rnd) }},
		{"crypto/mlkem's", true, func() []byte { _, c := key.EncapsulationKey().Encapsulate(); return c }},
		{"random bytes", false, func() []byte { b := make([]byte, 1088); fill(rand.Reader, b); return b }},
	}
	for _, s := range sources {
		const ciphertexts = 1000
		u, v := make([]int, 1024), make([]int, 16)
		four := 0 // values of u that stand for four coefficients
		for range ciphertexts {
			us, vs := unpack(s.next())
			for _, x := range us {
				u[x]++
				four += preimages(x) - 3
			}
			for _, x := range vs {
				v[x]++
			}
		}
		// Six standard deviations: crypto/mlkem takes no seed, and this must not fail by chance.
		du, dv := deviation(u, mlkemDU), deviation(v, mlkemDV)
		share := float64(four) / (ciphertexts * 768)
		t.Logf("%s: u %+.1f sigma, v %+.1f sigma, %.4f of u with four preimages", s.name, du, dv, share)
		if near := math.Abs(du) < 6 && math.Abs(dv) < 6; near != s.genuine {
			t.Errorf("%s: u %+.1f sigma, v %+.1f sigma", s.name, du, dv)
		}
		want := 257.0 / 1024
		if s.genuine {
			want = 257.0 * 4 / mlkemQ
		}
		if math.Abs(share-want) > 6*math.Sqrt(want*(1-want)/(ciphertexts*768)) {
			t.Errorf("%s: %.4f of u with four preimages, want %.4f", s.name, share, want)
		}
	}
}

func preimages(value int) (n int) {
	for x := (value*mlkemQ)/1024 - 3; x <= (value*mlkemQ)/1024+3; x++ {
		if compress(uint((x+mlkemQ)%mlkemQ), mlkemDU) == uint(value) {
			n++
		}
	}
	return n
}

// TestShareIndependence: neighbouring coefficients and neighbouring ciphertexts have nothing to do with each other.
func TestShareIndependence(t *testing.T) {
	var m shareMaker
	rnd := fixed(11)
	var last []int
	same, pairs := 0, 0
	for range 500 {
		u, _ := unpack(m.appendMLKEM(nil, rnd))
		for i := range u {
			if i > 0 && u[i] == u[i-1] {
				same++
			}
			if last != nil && u[i] == last[i] {
				same++
			}
			pairs += 2
		}
		last = u
	}
	if want := float64(pairs) / 1024; math.Abs(float64(same)-want) > 6*math.Sqrt(want) {
		t.Fatalf("%d of %d pairs are equal, want %.0f", same, pairs, want)
	}
}

func TestRandomSourceFails(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	new(shareMaker).appendX25519(nil, bytes.NewReader(nil))
}
